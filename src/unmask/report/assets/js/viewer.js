// The denoising viewer: sample, step, play and pause, by pointer and by keys.
(() => {
  if (!byId("viewer-box")) return;
  const sample = byId("viewer-sample"), slider = byId("viewer-step"), play = byId("viewer-play");
  let timer = null;

  const chosen = () => data.replays[sample.value];
  const last = () => Math.max(...chosen().panels.map((panel) => panel.steps.length));

  function show(at) {
    const step = Math.max(0, Math.min(at, last()));
    slider.max = last();
    slider.value = step;
    slider.setAttribute("aria-valuetext", `step ${step} of ${last()}`);
    byId("viewer-panels").replaceChildren(...chosen().panels.map((panel) => replayView.panelBox(panel, step)));
    byId("viewer-status").textContent = `Step ${step} of ${last()}`;
    byId("viewer-first").disabled = byId("viewer-back").disabled = step === 0;
    byId("viewer-forward").disabled = byId("viewer-last").disabled = step === last();
    if (step === last()) pause();
  }

  function pause() {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
    play.setAttribute("aria-label", "Play");
    play.setAttribute("aria-pressed", "false");
  }

  function start() {
    if (Number(slider.value) === last()) show(0);
    timer = setInterval(() => show(Number(slider.value) + 1), Number(byId("viewer-pace").value));
    play.textContent = "Pause";
    play.setAttribute("aria-label", "Pause");
    play.setAttribute("aria-pressed", "true");
  }

  const toggle = () => (timer === null ? start() : pause());
  function step(by) {
    pause();
    show(Number(slider.value) + by);
  }
  function pick() {
    pause();
    byId("viewer-prompt").textContent = `${chosen().prompt}\n\nTarget: ${chosen().target}`;
    show(0);
  }

  const named = data.replays.some((one) => one.experiment !== data.replays[0].experiment);
  sample.replaceChildren(...data.replays.map((one, index) =>
    element("option", { value: index, text: named ? `${one.experiment}: ${one.sample}` : one.sample })));
  sample.addEventListener("change", pick);
  slider.addEventListener("input", () => { pause(); show(Number(slider.value)); });
  play.addEventListener("click", toggle);
  byId("viewer-first").addEventListener("click", () => step(-last()));
  byId("viewer-back").addEventListener("click", () => step(-1));
  byId("viewer-forward").addEventListener("click", () => step(1));
  byId("viewer-last").addEventListener("click", () => step(last()));
  byId("viewer-pace").addEventListener("change", () => { if (timer !== null) { pause(); start(); } });
  byId("viewer-box").addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select")) return;
    const onButton = event.target.matches("button, summary");
    const keys = { ArrowLeft: () => step(-1), ArrowRight: () => step(1), Home: () => step(-last()), End: () => step(last()) };
    if (event.key === " " && !onButton) keys[" "] = toggle;
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
  pick();
})();
