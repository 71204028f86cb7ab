// Bytes as areas. A click on a branch zooms into it, a click on a leaf chooses it.

// Squarified (Bruls, Huizing and van Wijk): rows are filled as long as their cells get squarer.
function squarify(nodes, x, y, width, height) {
  const total = nodes.reduce((sum, node) => sum + node.nbytes, 0);
  if (!total || width <= 0 || height <= 0) return [];
  const scale = (width * height) / total;
  const placed = [];
  let rest = nodes.map((node) => [node, node.nbytes * scale]);
  while (rest.length) {
    const side = Math.min(width, height);
    const row = [];
    let sum = 0, worst = Infinity;
    for (const entry of rest) {
      const all = [...row, entry], next = sum + entry[1];
      const ratio = Math.max(...[all[0], entry].map(([, a]) => Math.max((side * side * a) / (next * next), (next * next) / (side * side * a))));
      if (row.length && ratio > worst) break;
      row.push(entry); sum = next; worst = ratio;
    }
    rest = rest.slice(row.length);
    const thick = sum / side;
    let at = width >= height ? y : x;
    for (const [node, area] of row) {
      const long = area / thick;
      if (width >= height) placed.push([node, x, at, thick, long]);
      else placed.push([node, at, y, long, thick]);
      at += long;
    }
    if (width >= height) { x += thick; width -= thick; } else { y += thick; height -= thick; }
  }
  return placed;
}

const MOST_CELLS = 1500;

class Treemap {
  constructor(root, choose) {
    this.root = this.shown = root;
    this.choose = choose;
    this.chosen = null;
    this.crumbs = el("nav", { class: "crumbs", "aria-label": "where the picture is" });
    this.map = el("div", { class: "map", id: "treemap" });
    new ResizeObserver(() => this.draw()).observe(this.map);
  }

  zoom(node) {
    this.shown = node;
    this.draw();
  }

  mark(node) {
    this.chosen = node;
    for (const cell of this.map.children) cell.classList.toggle("chosen", cell.node === node);
  }

  draw() {
    const path = [];
    for (let at = this.shown; at; at = at.parent) path.unshift(at);
    this.crumbs.replaceChildren(...path.flatMap((node, i) => [
      i ? el("i", {}, "›") : null,
      el("button", { "aria-current": node === this.shown ? "true" : null, onclick: () => this.zoom(node) }, node.name),
    ]).filter(Boolean));
    this.cells = [];
    this.place(this.shown, 0, 0, this.map.clientWidth, this.map.clientHeight, 0);
    this.map.replaceChildren(...this.cells);
  }

  place(node, x, y, width, height, depth) {
    const children = [...node.children.values()].filter((c) => c.nbytes).sort((a, b) => b.nbytes - a.nbytes);
    const nodes = children.length ? children : node.nbytes ? [node] : [];
    for (const [child, cx, cy, w, h] of squarify(nodes, x, y, width, height)) {
      if (w < 3 || h < 3 || this.cells.length > MOST_CELLS) continue;
      this.cells.push(this.cell(child, cx, cy, w, h, depth));
      const inside = child !== node && child.children.size;
      if (inside && w > 46 && h > 46 && depth < 4) this.place(child, cx + 3, cy + 21, w - 6, h - 24, depth + 1);
    }
  }

  cell(node, x, y, w, h, depth) {
    const what = node.leaf ? node.leaf.what : count(node.leaves, "leaf", "leaves");
    const about = `${nameOf(node)}\n${what}, ${bytes(node.nbytes)}`;
    const made = el("button", {
      class: "cell" + (node === this.chosen ? " chosen" : ""), title: about, "aria-label": about.replace("\n", ", "),
      style: { left: `${x}px`, top: `${y}px`, width: `${w}px`, height: `${h}px`, "--h": node.hue, "--d": depth },
      onclick: () => (node.children.size ? this.zoom(node) : this.choose(node)),
    });
    if (w > 34 && h > 17) made.append(el("span", {}, node.name));
    if (w > 60 && h > 36 && !node.children.size) made.append(el("small", {}, `${what} · ${bytes(node.nbytes)}`));
    made.node = node;
    return made;
  }
}
