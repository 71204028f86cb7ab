// One leaf: what it is, which device holds which part of it, its chunks, who wrote it, what its values are like.

const PROCESS_HUES = [218, 28, 158, 338, 268, 190, 48, 8];

function facts(pairs) {
  return el("dl", {}, pairs.filter(([, value]) => value !== null && value !== undefined && value !== "")
    .flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

function showLeaf(node, pictures) {
  const leaf = node.leaf;
  const picture = leaf.picture === undefined ? null : pictures[leaf.picture];
  const stored = Object.values(leaf.stored).reduce((a, b) => a + b, 0);
  const parts = [
    el("h2", {}, nameOf(node)),
    facts([
      ["what", leaf.what], ["kind", leaf.kind], ["the same as", leaf.tied], ["value", leaf.value], ["bytes", `${bytes(leaf.nbytes)} (${leaf.nbytes.toLocaleString("en")})`],
      ["on disk", stored ? bytes(stored) : null],
      ["chunks", leaf.chunk ? `${leaf.chunks.toLocaleString("en")} of [${leaf.chunk.join(", ")}]` : null],
      ["sharding", picture ? picture.short : null],
    ]),
  ];
  if (leaf.chunk && leaf.nbytes) {
    parts.push(el("h3", {}, picture && picture.boxes.length
      ? "Which device holds which part (dashed: chunks)" : "Chunks"));
    parts.push(drawArray(leaf, picture));
    if (picture && picture.devices > picture.boxes.length) {
      parts.push(el("p", { class: "note" }, `Drawn are ${picture.boxes.length} of ${picture.devices} devices.`));
    }
  }
  if (Object.keys(leaf.stored).length) parts.push(el("h3", {}, "Written by"), writers(leaf.stored));
  if (leaf.stats) parts.push(el("h3", {}, "Values"), histogram(leaf.stats, node.hue), numbers(leaf.stats));
  return parts;
}

function writers(stored) {
  const most = Math.max(...Object.values(stored), 1);
  const sorted = Object.entries(stored).sort((a, b) => Number(a[0]) - Number(b[0]));
  return el("div", { class: "bars" }, sorted.flatMap(([process, n]) => [
    el("span", {}, `process ${process}`),
    el("i", { style: { width: `${(100 * n) / most}%`, "--h": PROCESS_HUES[process % PROCESS_HUES.length] } }),
    el("span", {}, bytes(n)),
  ]));
}

// The two dimensions to draw: those that are cut, then the largest; the lower one goes down.
function twoDimensions(leaf, picture) {
  const shape = leaf.shape;
  const cut = shape.map((n, d) => (picture ? new Set(picture.boxes.map(([, box]) => box[d][0])).size : 1));
  const order = shape.map((_, d) => d).sort((a, b) => cut[b] - cut[a] || shape[b] - shape[a] || a - b);
  return order.slice(0, 2).sort((a, b) => a - b);
}

function drawArray(leaf, picture) {
  const dims = twoDimensions(leaf, picture);
  const [down, across] = dims.length === 2 ? dims : [null, dims.length ? dims[0] : null];
  const rows = down === null ? 1 : leaf.shape[down], columns = across === null ? 1 : leaf.shape[across];
  const width = 300, height = down === null ? 46 : Math.max(70, Math.min(230, (width * rows) / columns));
  const left = 34, top = 16;
  const X = (n) => left + (width * n) / columns, Y = (n) => top + (height * n) / rows;
  const made = svg("svg", { viewBox: `0 0 ${left + width + 2} ${top + height + 4}`, role: "img", "aria-label": "how the array is cut" });
  const span = (box, d, all) => (d === null ? [0, all] : box[d]);
  const groups = new Map();
  for (const [device, box] of picture ? picture.boxes : []) {
    const key = [...span(box, down, 1), ...span(box, across, 1)].join();
    if (!groups.has(key)) groups.set(key, { r: span(box, down, 1), c: span(box, across, 1), devices: [] });
    groups.get(key).devices.push(device);
  }
  if (!groups.size) groups.set("", { r: [0, rows], c: [0, columns], devices: [] });
  [...groups.values()].forEach(({ r, c, devices }, i) => {
    const w = X(c[1]) - X(c[0]), h = Y(r[1]) - Y(r[0]);
    made.append(svg("rect", {
      x: X(c[0]), y: Y(r[0]), width: Math.max(w, 0), height: Math.max(h, 0), rx: 2,
      style: { fill: `hsl(${(218 + (i * 360) / Math.max(groups.size, 1)) % 360} var(--cell-s) var(--cell-l))`, stroke: "var(--card)", "stroke-width": 1.5 },
    }, svg("title", {}, devices.length ? `devices ${devices.join(", ")}: rows ${r.join(":")}, columns ${c.join(":")}` : "one part")));
    const label = devices.length > 4 ? `${devices.slice(0, 3).join(", ")} +${devices.length - 3}` : devices.join(", ");
    if (label && w > 8 * label.length * 0.75 + 4 && h > 13) {
      made.append(svg("text", { x: X(c[0]) + w / 2, y: Y(r[0]) + h / 2 + 4, "text-anchor": "middle" }, label));
    }
  });
  chunkLines(made, leaf, down, across, X, Y, rows, columns);
  made.append(svg("text", { class: "dim", x: left + width / 2, y: 10, "text-anchor": "middle" },
    across === null ? "one value" : `dimension ${across}: ${columns.toLocaleString("en")}`));
  if (down !== null) {
    made.append(svg("text", { class: "dim", x: 0, y: 0, "text-anchor": "middle", transform: `translate(22 ${top + height / 2}) rotate(-90)` },
      `dimension ${down}: ${rows.toLocaleString("en")}`));
  }
  return made;
}

function chunkLines(made, leaf, down, across, X, Y, rows, columns) {
  const style = { stroke: "var(--text)", "stroke-width": 0.8, "stroke-dasharray": "2 3", opacity: 0.55 };
  for (const [d, all, vertical] of [[down, rows, false], [across, columns, true]]) {
    if (d === null || !leaf.chunk[d] || all / leaf.chunk[d] > 80) continue;
    for (let at = leaf.chunk[d]; at < all; at += leaf.chunk[d]) {
      made.append(svg("line", vertical
        ? { x1: X(at), x2: X(at), y1: Y(0), y2: Y(rows), style } : { x1: X(0), x2: X(columns), y1: Y(at), y2: Y(at), style }));
    }
  }
}

function histogram(stats, hue) {
  const counts = stats.histogram, most = Math.max(...counts, 1), width = 330, height = 84;
  const step = width / Math.max(counts.length, 1);
  return svg("svg", { viewBox: `0 0 ${width} ${height + 16}`, role: "img", class: "histogram", "aria-label": "histogram of the values" },
    counts.map((n, i) => svg("rect", {
      x: i * step + 0.5, width: step - 1, y: height - (height * n) / most, height: Math.max((height * n) / most, n ? 1 : 0),
      style: { fill: `hsl(${hue} var(--bar-s) var(--bar-l))` },
    }, svg("title", {}, `${n.toLocaleString("en")} values`))),
    svg("line", { x1: 0, x2: width, y1: height + 0.5, y2: height + 0.5, style: { stroke: "var(--line)" } }),
    svg("text", { class: "dim", x: 0, y: height + 14 }, short(stats.min)),
    svg("text", { class: "dim", x: width, y: height + 14, "text-anchor": "end" }, short(stats.max)));
}

function numbers(stats) {
  return facts([["mean", short(stats.mean)], ["std", short(stats.std)], ["norm", short(stats.norm)],
    ["values", stats.count.toLocaleString("en")],
    ["zeros", stats.zero.toLocaleString("en")], ["NaN, Inf", `${stats.nan.toLocaleString("en")}, ${stats.inf.toLocaleString("en")}`]]);
}
