// What a replay knows at each step: pure functions, no page.
const replayModel = {
  // "c3p2" as letters, one a layer; a step without plan computes everything.
  layers(step, count) {
    if (!step.ops) return "c".repeat(count);
    return [...step.ops.matchAll(/([a-z])(\d+)/g)].map(([, letter, many]) => letter.repeat(Number(many))).join("");
  },

  // Every position of the answer after `at` steps: token, confidence and the step that wrote it.
  known(panel, at) {
    const found = new Map();
    panel.steps.slice(0, at).forEach((step, number) => {
      for (const [column, text, sure] of step.written) found.set(column, { text, sure, step: number + 1 });
    });
    return found;
  },

  // The block that a step works on, as first column and end; of a canvas, which is one block, the answer.
  block(panel, at) {
    if (!panel.block_size) return [panel.prompt_tokens, panel.end];
    const step = panel.steps[Math.max(0, at - 1)];
    const size = panel.block_size;
    const first = !step || step.kind === "prefill" ? panel.prompt_tokens : step.fed[0];
    const start = Math.floor(first / size) * size;
    return [start, start + size];
  },

  // Which columns went through the layers: all that were fed, or those a policy chose.
  rows(step) {
    if (step.rows) return { sure: new Set(step.rows), among: new Set(step.among ?? []) };
    const sure = new Set();
    for (let column = step.fed[0]; column < step.fed[1]; column++) sure.add(column);
    return { sure, among: new Set() };
  },

  caption(panel, at) {
    if (at === 0) return "Before the first step: the answer is all masks.";
    const step = panel.steps[at - 1];
    const letters = replayModel.layers(step, panel.layers);
    const replayed = [...letters].filter((letter) => letter === "p").length;
    const fed = step.kind === "prefill" ? "the prompt" : `positions ${step.fed[0]} to ${step.fed[1] - 1}`;
    const chosen = step.rows ? `, ${step.rows.length + (step.count ?? 0)} of ${step.fed[1] - step.fed[0]} rows` : "";
    const work = replayed ? `${replayed} of ${panel.layers} layers replayed (${step.unit})` : "all layers computed";
    const tokens = step.written.length === 1 ? "1 token" : `${step.written.length} tokens`;
    return `Step ${at} of ${panel.steps.length}: ${step.kind}, ${fed}${chosen}; ${work}; ${tokens} unmasked.`;
  },
};
