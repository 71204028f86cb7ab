// Elements, numbers as people read them, and the tree that the leaves spell.

function fill(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "style") for (const [k, v] of Object.entries(value)) made.style.setProperty(k, v);
    else made.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined) made.append(child);
  }
  return made;
}

// Texts always go in as texts: the name of a leaf is never read as HTML.
function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function bytes(n) {
  if (n < 1024) return `${n} B`;
  let unit = -1;
  do { n /= 1024; unit += 1; } while (n >= 1024 && unit < 3);
  return `${n < 100 ? n.toFixed(1) : Math.round(n)} ${["KiB", "MiB", "GiB", "TiB"][unit]}`;
}

function seconds(s) {
  return s >= 1 ? `${s.toFixed(2)} s` : `${(1000 * s).toFixed(1)} ms`;
}

function moment(ms) {
  const d = new Date(ms), two = (n) => String(n).padStart(2, "0");
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ` +
    `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}

function short(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number" || Number.isInteger(value)) return String(value);
  return String(Number(value.toPrecision(5)));
}

function count(n, one, many) {
  return `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
}

const HUES = [218, 28, 158, 338, 268, 190, 48, 8];

function grow(trees) {
  const make = (name, parent) => ({
    name, parent, children: new Map(), leaf: null, leaves: 0, nbytes: 0, stored: 0, hue: 218,
    depth: parent ? parent.depth + 1 : 0,
  });
  const root = make("all", null);
  for (const tree of trees) {
    for (const leaf of tree.leaves) {
      const path = tree.item && trees.length > 1 ? [tree.item, ...leaf.path] : leaf.path;
      const stored = Object.values(leaf.stored).reduce((a, b) => a + b, 0);
      let node = root;
      for (const part of [null, ...path]) {
        if (part !== null) {
          if (!node.children.has(part)) node.children.set(part, make(part, node));
          node = node.children.get(part);
        }
        node.leaves += 1; node.nbytes += leaf.nbytes; node.stored += stored;
      }
      node.leaf = leaf;
    }
  }
  const largest = [...root.children.values()].sort((a, b) => b.nbytes - a.nbytes);
  largest.forEach((child, i) => paint(child, HUES[i % HUES.length]));
  return root;
}

function paint(node, hue) {
  node.hue = hue;
  for (const child of node.children.values()) paint(child, hue);
}

function pathOf(node) {
  const parts = [];
  for (let at = node; at.parent; at = at.parent) parts.unshift(at.name);
  return parts;
}

const nameOf = (node) => pathOf(node).join(".") || "(the whole tree)";
