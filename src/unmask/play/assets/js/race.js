// What was told of a decoding so far, as data: pure functions, no page.
const raceModel = {
  empty: () => ({ prompt: "", target: "", panels: [], order: [], answers: [null, null], failed: [null, null], ended: false }),

  // Take in one event of the server.
  add(race, event) {
    if (event.event === "ready") {
      for (const side of event.sides) race.panels.push({ ...side, steps: [] });
    } else if (event.event === "step") {
      race.panels[event.side].steps.push(event);
      race.order.push(event.side);
    } else if (event.event === "answer") {
      race.answers[event.side] = event;
      const panel = race.panels[event.side];
      panel.finish = event.finish;
      // Letters of several tokens are known only now.
      for (const step of panel.steps) {
        for (const written of step.written) written[1] = event.texts[written[0] - panel.prompt_tokens] ?? written[1];
      }
    } else if (event.event === "failed") {
      if (event.side === null) race.failed = [event.sentence, event.sentence];
      else race.failed[event.side] = event.sentence;
    } else if (event.event === "end") {
      race.ended = true;
    }
  },

  // How many steps of each side lie among the first `at` of both.
  taken(race, at) {
    const taken = race.panels.map(() => 0);
    for (const side of race.order.slice(0, at)) taken[side]++;
    return taken;
  },

  // Sums over the first steps of a side. A branch row is one row through attention or MLP; two make a layer row.
  counters(race, side, taken) {
    const panel = race.panels[side];
    const found = { forwards: 0, rows: 0, full: 0, tokens: 0, prefills: 0, seconds: 0 };
    for (const step of panel.steps.slice(0, taken)) {
      found.forwards += step.forwards;
      found.prefills += step.kind === "prefill" ? step.forwards : 0;
      found.rows += step.done.reduce((sum, rows) => sum + rows, 0) / 2;
      found.full += (step.full * panel.layers) / 2;
      found.tokens += step.written.length;
      found.seconds = step.at;
    }
    const answer = race.answers[side];
    if (answer && taken === panel.steps.length) {
      found.tokens = answer.tokens;
      found.seconds = answer.at;
    }
    return found;
  },

  // The share of the layers that a step computed for each position; what chance of the device decides is averaged.
  shares(panel, step) {
    const letters = replayModel.layers(step, panel.layers);
    const half = step.unit === "attention" || step.unit === "mlp" ? 0.5 : 0;
    const cost = [...letters].map((letter) => (letter === "p" ? half : 1));
    const mean = (part) => part.reduce((sum, one) => sum + one, 0) / panel.layers;
    const { sure, among } = replayModel.rows(step);
    const found = new Map();
    for (const position of sure) found.set(position, mean(cost));
    const probe = step.probe ?? 0;
    const chance = among.size ? step.count / among.size : 0;
    for (const position of among) found.set(position, mean(cost.map((one, layer) => (layer < probe ? one : one * chance))));
    return found;
  },

  // Where the maps begin and end: the answer, from the first block that is denoised.
  range(panel) {
    const start = panel.block_size ? Math.floor(panel.prompt_tokens / panel.block_size) * panel.block_size : 0;
    let stop = panel.prompt_tokens + 1;
    for (const step of panel.steps) if (step.kind !== "prefill") stop = Math.max(stop, step.fed[1]);
    return [start, stop];
  },
};
