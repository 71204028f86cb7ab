// The page, put together from the data that is in it.

function fact(value, name) {
  return el("div", { class: "fact" }, el("b", {}, value), el("span", {}, name));
}

function summary(data, root) {
  const seen = data.checkpoint;
  const leaves = data.trees.flatMap((tree) => tree.leaves);
  const processes = new Set(leaves.flatMap((leaf) => Object.keys(leaf.stored)));
  const chunks = leaves.reduce((sum, leaf) => sum + (leaf.chunks || 0), 0);
  return el("div", { class: "facts" }, fact(root.leaves.toLocaleString("en"), root.leaves === 1 ? "leaf" : "leaves"),
    fact(bytes(root.nbytes), "of values"), fact(bytes(seen.nbytes), `in ${count(seen.files, "file", "files")}`),
    fact(chunks.toLocaleString("en"), chunks === 1 ? "chunk" : "chunks"),
    fact(String(processes.size), processes.size === 1 ? "process wrote it" : "processes wrote it"),
    fact(seen.seconds === null ? "–" : seconds(seen.seconds), "the save took"));
}

function byProcess(data) {
  const all = {};
  for (const leaf of data.trees.flatMap((tree) => tree.leaves)) {
    for (const [process, n] of Object.entries(leaf.stored)) all[process] = (all[process] || 0) + n;
  }
  const sizes = Object.values(all);
  if (!sizes.length) return null;
  const mean = sizes.reduce((a, b) => a + b, 0) / sizes.length;
  const note = sizes.length === 1 ? "One process wrote all of it."
    : `The heaviest wrote ${(Math.max(...sizes) / mean).toFixed(2)} times the mean.`;
  return el("section", { class: "card", id: "processes" }, el("h2", {}, "Who wrote how much"),
    el("p", { class: "note" }, note), writers(all));
}

function leafSections(data, root) {
  const panel = el("div", { class: "leaf", id: "leaf", "aria-live": "polite" });
  const choose = (node) => {
    panel.replaceChildren(...showLeaf(node, data.pictures));
    map.mark(node);
    tree.mark(node);
  };
  const map = new Treemap(root, choose);
  const tree = new Tree(root, choose);
  const mapCard = el("section", { class: "card", id: "map" }, el("h2", {}, "Bytes by subtree"),
    el("p", { class: "note" }, "Click a branch to zoom into it, a leaf to see it below."), map.crumbs, map.map);
  const treeCard = el("section", { class: "card", id: "leaves" }, el("h2", {}, "The tree"),
    el("p", { class: "note" }, "Click a leaf to see how it is cut into shards and chunks" + (data.trees.some((t) => t.leaves.some((l) => l.stats)) ? ", and its values." : ".")),
    el("div", { class: "two" }, el("div", {}, tree.tools, tree.rows, tree.found), panel));
  const all = (node) => (node.leaf ? [node] : [...node.children.values()].flatMap(all));
  if (root.leaves) choose(all(root).reduce((a, b) => (b.nbytes > a.nbytes ? b : a)));
  return root.nbytes ? [mapCard, treeCard] : [treeCard];
}

function build(data) {
  const page = document.getElementById("page");
  const root = grow(data.trees);
  const seen = data.checkpoint;
  document.title = `${data.name}: storax report`;
  document.getElementById("title").textContent = data.steps.length && seen
    ? `${data.name}, step ${seen.path.split("/").pop()}` : data.name;
  document.getElementById("subtitle").textContent = (seen ? seen.path : data.path) + (seen ? ` · saved ${moment(seen.saved_ms)}` : "");
  if (seen) page.append(summary(data, root));
  if (data.steps.length) page.append(showSteps(data.steps));
  if (seen) page.append(...leafSections(data, root));
  const processes = byProcess(data);
  if (processes) page.append(processes);
  const said = seen ? [...Object.entries(seen.metrics), ...Object.entries(seen.custom)] : [];
  if (said.length) {
    page.append(el("section", { class: "card", id: "custom" }, el("h2", {}, "Saved beside it"),
      facts(said.map(([key, value]) => [key, typeof value === "string" ? value : JSON.stringify(value)]))));
  }
  if (data.traces.length) page.append(showTraces(data.traces));
  document.getElementById("foot").textContent = `Made by storax report on ${data.made}.` +
    (data.others.length ? ` Items that are no trees of arrays: ${data.others.join(", ")}.` : "");
}

build(JSON.parse(document.getElementById("data").textContent));
