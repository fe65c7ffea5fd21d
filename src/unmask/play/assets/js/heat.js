// The maps of computed work: steps to the right; downward the positions, or upward the layers.
const heatMap = (() => {
  const HIGH = 190, LEFT = 34, BOTTOM = 18, ROOM = 520;

  function colours(canvas) {
    const style = getComputedStyle(canvas);
    const read = (name) => style.getPropertyValue(name).trim();
    // A canvas does not know light-dark(): the browser resolves colours of elements only.
    const probe = document.createElement("span");
    canvas.parentNode.append(probe);
    const resolved = (name) => { probe.style.color = `var(${name})`; return getComputedStyle(probe).color; };
    const found = { work: resolved("--block"), known: resolved("--amber"), line: resolved("--rule"), soft: resolved("--soft"), prompt: resolved("--sunken"), font: read("--sans") };
    probe.remove();
    return found;
  }

  // Neighbouring rows with the same share of the work become one bar: [first row, rows, share].
  function bars(cells) {
    const found = [];
    for (const [place, share] of cells) {
      const last = found.at(-1);
      if (last && last[2] === share && last[0] + last[1] === place) last[1]++;
      else if (share) found.push([place, 1, share]);
    }
    return found;
  }

  function positionCells(panel, step, first) {
    if (step.kind === "prefill") return [];
    return [...raceModel.shares(panel, step)].map(([position, share]) => [position - first, share]).sort(([one], [two]) => one - two);
  }

  function layerCells(panel, step) {
    const top = panel.layers - 1;
    return step.done.map((_, place) => [place, step.done[top - place] / panel.widest]);
  }

  function draw(canvas, panel, taken, steps, how) {
    const [first, stop] = raceModel.range(panel);
    const byLayer = how === "layers";
    const rows = byLayer ? panel.layers : panel.rows ?? stop - first;
    const width = canvas.clientWidth || ROOM, scale = devicePixelRatio || 1;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round((HIGH + BOTTOM) * scale);
    canvas.style.height = `${HIGH + BOTTOM}px`;
    const paint = canvas.getContext("2d");
    paint.scale(scale, scale);
    const ink = colours(canvas);
    const cell = (width - LEFT - 2) / Math.max(1, steps), row = HIGH / Math.max(1, rows);
    if (!byLayer) {
      paint.fillStyle = ink.prompt;
      paint.fillRect(LEFT, 0, width - LEFT - 2, Math.max(0, panel.prompt_tokens - first) * row);
    }
    const gap = cell > 4 ? 0.8 : 0, slit = row > 4 ? 0.6 : 0;
    panel.steps.slice(0, taken).forEach((step, number) => {
      paint.fillStyle = ink.work;
      for (const [place, many, share] of bars(byLayer ? layerCells(panel, step) : positionCells(panel, step, first))) {
        paint.globalAlpha = 0.12 + 0.88 * Math.min(1, share);
        paint.fillRect(LEFT + number * cell, place * row, cell - gap, many * row - slit);
      }
      paint.globalAlpha = 1;
      if (byLayer) return;
      paint.fillStyle = ink.known;
      for (const [position] of step.written) {
        paint.fillRect(LEFT + number * cell, (position - first) * row, Math.max(1.5, cell - gap), Math.max(1.5, row - slit));
      }
    });
    axes(paint, ink, panel, { width, cell, row, rows, steps, first, byLayer });
  }

  function axes(paint, ink, panel, { width, cell, row, rows, steps, first, byLayer }) {
    paint.strokeStyle = ink.line;
    paint.strokeRect(LEFT - 0.5, 0.5, width - LEFT - 1, HIGH);
    paint.fillStyle = ink.soft;
    paint.font = `10px ${ink.font}`;
    paint.textAlign = "right";
    const every = byLayer ? Math.ceil(rows / 6) : Math.ceil(rows / 5 / 8) * 8;
    for (let place = 0; place < rows; place += every) {
      const name = byLayer ? panel.layers - place : first + place;
      paint.fillText(String(name), LEFT - 4, Math.min(HIGH, place * row + 9));
      if (!byLayer && place) { paint.beginPath(); paint.moveTo(LEFT, place * row); paint.lineTo(width - 2, place * row); paint.stroke(); }
    }
    paint.textAlign = "center";
    const stride = Math.max(1, Math.ceil(steps / 8 / 5) * 5);
    for (let number = 0; number < steps; number += stride) paint.fillText(String(number + 1), LEFT + (number + 0.5) * cell, HIGH + 13);
  }

  return { draw };
})();
