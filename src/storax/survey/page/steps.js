// The run: every step on a line with its size and state, the metrics below, and a table.

function showSteps(steps) {
  const numbered = steps.filter((s) => s.step !== null);
  const names = [...new Set(steps.flatMap((s) => Object.keys(s.metrics)))];
  const committed = steps.filter((s) => s.state === "committed");
  const total = steps.reduce((sum, s) => sum + s.nbytes, 0);
  return el("section", { class: "card", id: "steps" },
    el("h2", {}, "The run"),
    el("p", { class: "note" }, `${count(committed.length, "committed step", "committed steps")}, ${bytes(total)} in all. ` +
      "A circle's area is the step's size; dashed circles are drafts."),
    el("div", { class: "scroll" }, numbered.length ? drawSteps(numbered, names) : null),
    el("div", { class: "scroll" }, stepTable(steps, names)));
}

function drawSteps(steps, names) {
  const width = Math.max(520, Math.min(1080, document.getElementById("page").clientWidth - 60)), left = 86, right = 34, line = 46, metricHeight = 54;
  const low = Math.min(...steps.map((s) => s.step)), high = Math.max(...steps.map((s) => s.step));
  const X = (step) => left + ((width - left - right) * (high === low ? 0.5 : (step - low) / (high - low)));
  const largest = Math.max(...steps.map((s) => s.nbytes), 1);
  const height = line + 70 + names.length * metricHeight;
  const made = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "the steps of the run", style: { width: `${width}px`, "max-width": "none" } });
  made.append(svg("text", { class: "dim", x: 0, y: line + 4 }, "size"));
  made.append(svg("line", { x1: left, x2: width - right, y1: line, y2: line, style: { stroke: "var(--line)", "stroke-width": 2 } }));
  let labelled = -100;
  for (const s of steps) {
    const draft = s.state !== "committed", newest = s.why.includes("newest");
    const kept = s.why.length > (newest ? 1 : 0);
    made.append(svg("circle", {
      cx: X(s.step), cy: line, r: 4 + 16 * Math.sqrt(s.nbytes / largest),
      style: {
        fill: draft ? "var(--card)" : newest ? "var(--accent)" : kept ? "var(--good)" : "hsl(218 var(--bar-s) var(--bar-l) / 45%)",
        stroke: draft ? "var(--bad)" : "var(--card)", "stroke-width": 1.5, "stroke-dasharray": draft ? "3 3" : "none",
      },
    }, svg("title", {}, `${s.name}\n${s.state}${s.why.length ? `, kept: ${s.why.join(", ")}` : ""}\n${bytes(s.nbytes)} in ${s.files} files\n${moment(s.saved_ms)}`)));
    if (X(s.step) - labelled > 44) {
      labelled = X(s.step);
      made.append(svg("text", { class: "dim", x: X(s.step), y: line + 36, "text-anchor": "middle" }, String(s.step)));
    }
  }
  names.forEach((name, i) => drawMetric(made, steps, name, X, width, line + 62 + i * metricHeight, metricHeight - 18, i));
  return made;
}

function drawMetric(made, steps, name, X, width, top, height, i) {
  const known = steps.filter((s) => typeof s.metrics[name] === "number");
  const values = known.map((s) => s.metrics[name]);
  const low = Math.min(...values), high = Math.max(...values);
  const Y = (v) => top + height * (high === low ? 0.5 : 1 - (v - low) / (high - low));
  const colour = `hsl(${HUES[(i + 1) % HUES.length]} var(--bar-s) var(--bar-l))`;
  made.append(svg("text", { x: 0, y: top + height / 2 + 4 }, name));
  made.append(svg("polyline", { points: known.map((s) => `${X(s.step)},${Y(s.metrics[name])}`).join(" "), style: { fill: "none", stroke: colour, "stroke-width": 2 } }));
  for (const s of known) {
    made.append(svg("circle", { cx: X(s.step), cy: Y(s.metrics[name]), r: 3.4, style: { fill: colour } },
      svg("title", {}, `${name} at ${s.step}: ${short(s.metrics[name])}`)));
  }
  for (const s of new Set([known[values.indexOf(low)], known[values.indexOf(high)]])) {
    const y = Y(s.metrics[name]);
    const text = short(s.metrics[name]), x = X(s.step);
    // Beside its point: to the right where there is room for the text, else to the left.
    const fits = x + 7 + text.length * 8 <= width;
    made.append(svg("text", {
      class: "dim", x: fits ? x + 7 : x - 7, y: y + (s.metrics[name] === high ? -3 : 11), "text-anchor": fits ? "start" : "end",
    }, text));
  }
}

function stepTable(steps, names) {
  const tags = (s) => [
    s.state !== "committed" ? el("span", { class: "tag dead" }, s.state) : null,
    ...s.why.map((why) => el("span", { class: "tag kept" }, why)),
  ];
  return el("table", {},
    el("thead", {}, el("tr", {}, el("th", { class: "right" }, "step"), el("th", {}, "saved"), el("th", { class: "right" }, "took"),
      el("th", { class: "right" }, "size"), el("th", { class: "right" }, "files"), ...names.map((n) => el("th", { class: "right" }, n)), el("th", {}, "kept because"))),
    el("tbody", {}, steps.map((s) => el("tr", {},
      el("td", { class: "right" }, s.step === null ? s.name : String(s.step)), el("td", {}, moment(s.saved_ms)),
      el("td", { class: "right" }, s.seconds === null ? "–" : seconds(s.seconds)), el("td", { class: "right" }, bytes(s.nbytes)),
      el("td", { class: "right" }, String(s.files)), ...names.map((n) => el("td", { class: "right" }, short(s.metrics[n]))),
      el("td", {}, tags(s))))));
}
