// Draws one replay at one step: the answer's positions, confidences, and what the layers did.
const replayView = (() => {
  const WIDE = 13, LAYER = 5, LEFT = 34, HIGH = 40, ROOM = 832, GAP = 0.12;
  const NAMES = { c: "compute", f: "refresh", p: "replay" };

  function canvas(panel, at) {
    const box = element("div", { class: "canvas" });
    const known = replayModel.known(panel, at);
    const step = at ? panel.steps[at - 1] : null;
    // While an answer is decoded nobody knows where it ends.
    const last = panel.finish === undefined ? panel.end - 1 : Math.max(panel.prompt_tokens - 1, ...panel.steps.flatMap((one) => one.written.map(([column]) => column)));
    const [, stop] = replayModel.block(panel, at);
    const ends = Math.min(last + 1, Math.max(stop, ...known.keys()) + 0);
    for (let column = panel.prompt_tokens; column < ends; column++) {
      const one = known.get(column);
      if (!one) {
        const fed = step && column >= step.fed[0] && column < step.fed[1];
        box.append(element("span", { class: fed ? "mask fed" : "mask", text: "░ " }));
      } else if (one.step === at) {
        const sure = Math.round(25 + 65 * one.sure);
        const span = element("span", { class: sure > 62 ? "fresh strong" : "fresh", text: one.text });
        span.style.setProperty("--sure", `${sure}%`);
        span.dataset.tip = `position ${column}: confidence ${one.sure.toFixed(3)}`;
        box.append(span);
      } else {
        const span = element("span", { class: one.text === "⟨end⟩" ? "end" : "", text: one.text });
        span.dataset.tip = `position ${column}: step ${one.step}, confidence ${one.sure.toFixed(3)}`;
        box.append(span);
      }
    }
    return box;
  }

  // Columns of a canvas of several hundred positions are narrow, so that all of them are seen at once.
  function cellWidth(start, stop) {
    return Math.min(WIDE, ROOM / Math.max(1, stop - start));
  }

  function confidences(svg, panel, at, start, stop) {
    const CELL = cellWidth(start, stop);
    const known = replayModel.known(panel, at);
    const floor = HIGH + 4;
    for (let column = start; column < stop; column++) {
      const one = known.get(column);
      if (!one) continue;
      const height = Math.max(1, one.sure * HIGH);
      const low = one.sure < panel.threshold ? " low" : "";
      const rect = drawn("rect", {
        x: LEFT + (column - start + GAP) * CELL, y: floor - height, width: CELL * (1 - 2 * GAP), height,
        class: `sure${one.step === at ? " now" : ""}${low}`,
      });
      rect.dataset.tip = `position ${column} ${JSON.stringify(one.text)}: confidence ${one.sure.toFixed(3)} at step ${one.step}`;
      svg.append(rect);
    }
    const line = floor - panel.threshold * HIGH;
    const right = LEFT + (stop - start) * CELL;
    svg.append(drawn("line", { x1: LEFT, x2: right, y1: line, y2: line, class: "threshold" }));
    svg.append(drawn("line", { x1: LEFT, x2: right, y1: floor, y2: floor, class: "base" }));
    label(svg, LEFT - 5, floor - HIGH + 6, "1", "end");
    label(svg, LEFT - 5, floor, "0", "end");
  }

  function label(svg, x, y, text, anchor) {
    const found = drawn("text", { x, y, "text-anchor": anchor });
    found.textContent = text;
    svg.append(found);
  }

  function layers(svg, panel, at, start, stop, top) {
    const CELL = cellWidth(start, stop);
    const step = at ? panel.steps[at - 1] : null;
    const letters = step ? replayModel.layers(step, panel.layers) : "";
    const rows = step ? replayModel.rows(step) : null;
    for (let layer = 0; layer < panel.layers; layer++) {
      // The first layer lies at the bottom, as in drawings of networks.
      const y = top + (panel.layers - 1 - layer) * LAYER;
      for (let column = start; column < stop; column++) {
        const fed = rows && (rows.sure.has(column) || rows.among.has(column)) && step.kind !== "prefill";
        let kind = fed ? NAMES[letters[layer]] : "idle";
        if (fed && rows.among.has(column) && layer >= (step.probe ?? 0) && kind !== "replay") kind = "among";
        svg.append(drawn("rect", {
          x: LEFT + (column - start + GAP / 2) * CELL, y: y + 0.5, width: CELL * (1 - GAP), height: LAYER - 1, class: kind,
        }));
        if (kind === "replay") {
          const x = LEFT + (column - start) * CELL;
          svg.append(drawn("line", { x1: x + CELL / 4, x2: x + 0.75 * CELL, y1: y + LAYER / 2, y2: y + LAYER / 2, class: "replay-mark" }));
        }
      }
    }
    const bottom = top + panel.layers * LAYER;
    label(svg, LEFT - 5, bottom - 1, "1", "end");
    label(svg, LEFT - 5, top + 6, String(panel.layers), "end");
    for (let column = start; column < stop; column += CELL < WIDE ? 32 : 8) label(svg, LEFT + (column - start) * CELL + CELL / 2, bottom + 11, String(column), "middle");
  }

  function map(panel, at) {
    const [start, stop] = replayModel.block(panel, at);
    const top = HIGH + 12;
    const width = LEFT + (stop - start) * cellWidth(start, stop) + 4;
    const svg = drawn("svg", { viewBox: `0 0 ${width} ${top + panel.layers * LAYER + 15}`, class: "layer-map", role: "img" });
    svg.setAttribute("aria-label", replayModel.caption(panel, at));
    confidences(svg, panel, at, start, stop);
    layers(svg, panel, at, start, stop, top);
    return svg;
  }

  function panelBox(panel, at) {
    const heading = element("h4", { text: panel.configuration });
    if (panel.correct !== undefined) {
      const right = panel.correct === 1;
      heading.append(element("span", { class: `outcome ${right ? "right" : "wrong"}`, text: right ? "right" : "wrong" }));
    }
    const shown = Math.min(at, panel.steps.length);
    const box = element("div", { class: "panel" }, heading);
    const note = panel.same !== false ? "" : " This replay's answer differs from the recorded one.";
    box.append(element("p", { class: "caption", text: replayModel.caption(panel, shown) + note }), canvas(panel, shown), map(panel, shown));
    return box;
  }

  return { panelBox };
})();
