// Draws a race at one moment: counters, panels, maps, and in the end the answers with what differs marked.
const stage = (() => {
  const MEASURES = [
    ["Forwards", (one) => one.forwards, counted],
    ["Layer rows computed", (one) => one.rows, (value) => counted(Math.round(value))],
    ["Computed share of these forwards", (one) => (one.full ? one.rows / one.full : null), (value) => `${(100 * value).toFixed(0)} %`],
    ["Tokens", (one) => one.tokens, counted],
    ["Tokens a forward", (one) => ratio(one.tokens, one.forwards - one.prefills), (value) => value.toFixed(2)],
    ["Seconds of its own", (one) => one.seconds, (value) => value.toFixed(2)],
    ["Tokens a second", (one) => ratio(one.tokens, one.seconds), (value) => value.toFixed(1)],
  ];
  let how = "positions";

  function ratio(above, below) { return below ? above / below : null; }

  function counters(race, taken) {
    const sums = race.panels.map((_, side) => raceModel.counters(race, side, taken[side]));
    byId("counters").tBodies[0].replaceChildren(...MEASURES.map(([name, value, shown]) => {
      const values = sums.map(value);
      const line = element("tr", {}, element("th", { scope: "row", text: name }));
      for (const each of values) line.append(element("td", { class: "number", text: each === null ? "–" : shown(each) }));
      const share = values[0] !== null && values[1] ? values[0] / values[1] : null;
      line.append(element("td", { class: "number soft", text: share === null ? "–" : share.toFixed(2) }));
      return line;
    }));
  }

  function words(panel) {
    const given = Object.entries(panel.settings).map(([name, value]) => `${name} ${value}`);
    return given.join(", ") || "as the checkpoint and its family have it";
  }

  function panels(race, taken) {
    byId("panels").replaceChildren(...race.panels.map((panel, side) => {
      const box = replayView.panelBox(panel, taken[side]);
      box.querySelector("h4").append(element("span", { class: "words", text: words(panel) }));
      if (race.failed[side]) box.append(element("p", { class: "error", text: race.failed[side] }));
      return box;
    }));
  }

  function maps(race, taken) {
    const place = byId("maps");
    if (place.childElementCount !== race.panels.length) {
      place.replaceChildren(...race.panels.map((panel) => {
        const canvas = element("canvas", { class: "map", role: "img" });
        return element("div", { class: "panel" }, element("h4", { text: panel.configuration }), canvas);
      }));
    }
    // Both maps have one scale, so that what is shorter took fewer steps.
    const steps = Math.max(24, ...race.panels.map((panel) => panel.steps.length));
    const rows = Math.max(...race.panels.map((panel) => { const [first, stop] = raceModel.range(panel); return stop - first; }));
    const widest = Math.max(1, ...race.panels.flatMap((panel) => panel.steps.filter((step) => step.kind !== "prefill").map((step) => step.full)));
    race.panels.forEach((panel, side) => {
      const canvas = place.children[side].querySelector("canvas");
      const sums = raceModel.counters(race, side, taken[side]);
      canvas.setAttribute("aria-label", `${taken[side]} steps, ${Math.round(sums.rows)} layer rows computed, by ${how}`);
      heatMap.draw(canvas, { ...panel, rows, widest }, taken[side], steps, how);
    });
    byId("map-legend").replaceChildren(
      "Steps to the right, on one scale for both. ",
      how === "positions" ? "Downward the positions from the first block that is denoised; shaded rows are the prompt. " : "The first layer is at the bottom. ",
      element("span", { class: "keyed" }, element("span", { class: "key layer-compute" }), how === "positions" ? "computed: paler where fewer layers ran" : "computed: paler where fewer rows ran"),
      ...(how === "positions" ? [element("span", { class: "keyed" }, element("span", { class: "key mark-control" }), "became known")] : []),
    );
  }

  function answerBox(race, side, pieces) {
    const pre = element("pre");
    for (const [text, shared] of pieces) pre.append(shared ? text : element("mark", { text }));
    const right = isRight(race, side);
    const box = element("div", { class: right === null ? "" : right ? "right" : "wrong" });
    const state = right === null ? "" : right ? ": right" : ": wrong";
    box.append(element("h5", { text: `${race.panels[side].configuration}${state}` }), pre);
    return box;
  }

  function isRight(race, side) {
    if (!race.target) return null;
    const found = race.answers[side].text.match(/####\s*(-?\d+)\s*$/);
    return Boolean(found) && found[1] === race.target;
  }

  function answers(race, whole) {
    const there = whole && race.answers.every(Boolean);
    byId("answers").hidden = !there;
    if (!there) return;
    const [first, second] = race.answers.map((answer) => answer.text);
    const [one, two] = compareWords(first, second);
    byId("answer-boxes").replaceChildren(answerBox(race, 0, one), answerBox(race, 1, two));
    const target = race.target ? ` The right result is ${race.target}.` : "";
    byId("verdict").textContent = (first === second ? "Both answers are the same, letter for letter." : "The answers differ where they are marked.") + target;
  }

  function show(race, at) {
    byId("race").hidden = !race.panels.length;
    if (!race.panels.length) { byId("answers").hidden = true; return; }
    const taken = raceModel.taken(race, at);
    counters(race, taken);
    panels(race, taken);
    maps(race, taken);
    answers(race, race.ended && at >= race.order.length);
  }

  function choose(name) {
    how = name;
    for (const button of document.querySelectorAll("[data-map]")) button.setAttribute("aria-pressed", String(button.dataset.map === name));
  }

  return { show, choose };
})();
