// How saves and loads spent their time: a lane per span, grouped by thread.

const SPAN_HUES = {
  save: 218, load: 218, flatten: 268, plan: 268, stage: 28, write: 158, read: 158, fsync: 338, merge: 190,
  publish: 48, retain: 8, barrier: 8, place: 28,
};

function showTraces(traces) {
  return el("section", { class: "card", id: "traces" }, el("h2", {}, "Where the time went"),
    el("p", { class: "note" }, "One lane per kind of work, by process and thread."),
    traces.flatMap((trace) => [
      el("h3", {}, `${trace.title}: ${seconds(trace.seconds)}`),
      ...lanes(trace),
    ]));
}

function lanes(trace) {
  let thread = null;
  const made = [];
  for (const lane of trace.lanes) {
    if (`${lane.process} ${lane.thread}` !== thread) {
      thread = `${lane.process} ${lane.thread}`;
      made.push(el("div", { class: "thread" }, `process ${lane.process}, ${lane.thread_name}`));
    }
    const hue = SPAN_HUES[lane.name] ?? HUES[[...lane.name].reduce((sum, c) => sum + c.charCodeAt(0), 0) % HUES.length];
    made.push(el("div", { class: "lane" },
      el("span", { class: "label", style: { "padding-left": `${10 * lane.depth}px` } },
        lane.name + (lane.spans.length > 1 ? ` ×${lane.spans.length}` : "")),
      el("span", { class: "busy" }, seconds(lane.busy)),
      el("div", { class: "track" }, lane.spans.slice(0, 2000).map(([begin, took, file]) => el("i", {
        title: `${lane.name}: ${seconds(took)}${file ? `\n${file}` : ""}`,
        style: { left: `${(100 * begin) / trace.seconds}%`, width: `${(100 * took) / trace.seconds}%`, "--h": hue },
      })))));
  }
  return made;
}
