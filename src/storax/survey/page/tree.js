// The tree as rows, with search and sorting. Rows are made when they are seen, also of 100,000 leaves.

const MOST_ROWS = 400;
const FIRST_ROWS = 36;

class Tree {
  constructor(root, choose) {
    this.root = root;
    this.choose = choose;
    this.open = new Set([root]);
    this.order = "tree";
    this.words = "";
    this.most = MOST_ROWS;
    this.chosen = null;
    this.rows = el("div", { class: "tree", id: "tree" });
    this.found = el("p", { class: "note", "aria-live": "polite", style: { margin: "8px 0 0" } });
    this.tools = el("div", { class: "tools" },
      el("input", {
        type: "search", id: "search", placeholder: "Search names, shapes, dtypes; or /regex/", "aria-label": "search",
        oninput: (event) => { this.words = event.target.value.trim(); this.most = MOST_ROWS; this.draw(); },
      }),
      el("select", { id: "sort", "aria-label": "order", onchange: (e) => { this.order = e.target.value; this.draw(); } },
        el("option", { value: "tree" }, "as in the tree"), el("option", { value: "size" }, "largest first"),
        el("option", { value: "name" }, "by name")),
      el("button", { id: "unfold", onclick: () => this.unfold() }, "Unfold"),
      el("button", { id: "fold", onclick: () => { this.open = new Set([root]); this.draw(); } }, "Fold"));
    this.openFirst();
    this.draw();
  }

  openFirst() {
    let level = [this.root], rows = 0;
    while (level.length) {
      const next = level.flatMap((node) => [...node.children.values()]);
      rows += next.length;
      if (rows > FIRST_ROWS) return;
      level.forEach((node) => this.open.add(node));
      level = next;
    }
  }

  unfold() {
    const visit = (node) => { if (node.children.size) { this.open.add(node); node.children.forEach(visit); } };
    visit(this.root);
    this.draw();
  }

  matcher() {
    if (!this.words) return null;
    const slashes = /^\/(.+)\/$/.exec(this.words);
    if (slashes) {
      try {
        const regex = new RegExp(slashes[1]);
        return (text) => regex.test(text);
      } catch (error) { return () => false; }
    }
    const parts = this.words.toLowerCase().split(/\s+/);
    return (text) => parts.every((part) => text.toLowerCase().includes(part));
  }

  // Of a search: the leaves that fit, and the branches above them.
  matched() {
    const fits = this.matcher();
    if (!fits) return null;
    const kept = new Set();
    this.hits = 0;
    const visit = (node) => {
      let any = Boolean(node.leaf) && fits(`${nameOf(node)} ${node.leaf.what}`);
      if (any) this.hits += 1;
      for (const child of node.children.values()) any = visit(child) || any;
      if (any) kept.add(node);
      return any;
    };
    visit(this.root);
    return kept;
  }

  children(node) {
    const all = [...node.children.values()];
    if (this.order === "size") all.sort((a, b) => b.nbytes - a.nbytes || (a.name < b.name ? -1 : 1));
    if (this.order === "name") all.sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
    return all;
  }

  draw() {
    const kept = this.matched();
    const rows = [];
    const visit = (node, level) => {
      for (const child of this.children(node)) {
        if (kept && !kept.has(child)) continue;
        if (rows.length >= this.most) { rows.cut = true; return; }
        const isOpen = kept ? kept.has(child) : this.open.has(child);
        rows.push(this.row(child, level, isOpen));
        if (isOpen) visit(child, level + 1);
      }
    };
    if (this.root.leaf && !this.root.children.size) rows.push(this.row(this.root, 0, false));
    visit(this.root, 0);
    const head = el("div", { class: "row head" }, el("span", {}, "name"), el("span", { class: "what" }, "what"),
      el("span", { class: "right" }, "bytes"), el("span", { class: "right chunks" }, "chunks"));
    const more = rows.cut
      ? el("button", { class: "more", onclick: () => { this.most *= 4; this.draw(); } }, "Show more rows") : null;
    this.rows.replaceChildren(head, ...rows, ...(more ? [more] : []));
    this.found.textContent = kept ? `${count(this.hits, "leaf", "leaves")} found` : "";
  }

  row(node, level, isOpen) {
    const leaf = node.leaf, branch = node.children.size > 0;
    const part = this.root.nbytes ? node.nbytes / this.root.nbytes : 0;
    const made = el("button", {
      class: "row" + (node === this.chosen ? " chosen" : ""), title: nameOf(node),
      "aria-expanded": branch ? String(isOpen) : null,
      onclick: () => {
        if (!branch) { this.choose(node); return; }
        if (this.open.has(node)) this.open.delete(node); else this.open.add(node);
        this.draw();
      },
    },
      el("span", { class: "name", style: { "padding-left": `${14 * level}px` } },
        el("span", { class: "twist" }, branch ? (isOpen ? "▾" : "▸") : ""), this.marked(node.name || "(the whole tree)")),
      el("span", { class: "what" }, leaf ? leaf.what : count(node.leaves, "leaf", "leaves")),
      el("span", { class: "size", style: { "--part": part, "--h": node.hue } }, el("b", {}, bytes(node.nbytes))),
      el("span", { class: "right chunks" }, leaf && leaf.chunks ? leaf.chunks.toLocaleString("en") : ""));
    made.node = node;
    return made;
  }

  marked(text) {
    const word = this.words.toLowerCase().split(/\s+/)[0];
    const at = word && !word.startsWith("/") ? text.toLowerCase().indexOf(word) : -1;
    if (at < 0) return [text];
    return [text.slice(0, at), el("mark", {}, text.slice(at, at + word.length)), text.slice(at + word.length)];
  }

  mark(node) {
    this.chosen = node;
    for (let at = node.parent; at; at = at.parent) this.open.add(at);
    this.draw();
    const row = [...this.rows.children].find((r) => r.node === node);
    if (!row) return;
    // Only the list scrolls, never the page.
    const list = this.rows.getBoundingClientRect(), place = row.getBoundingClientRect();
    if (place.top < list.top + 30 || place.bottom > list.bottom) this.rows.scrollTop += place.top - list.top - 80;
  }
}
