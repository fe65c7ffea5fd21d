// Plays a race: while it comes in, and again as often as somebody likes. A pace is a number of steps a second.
const player = (() => {
  const slider = byId("at"), button = byId("play");
  let race = raceModel.empty();
  let at = 0, playing = false, due = 0, drawn = null, rest = 0;

  const pace = () => Number(byId("pace").value);
  const last = () => race.order.length;

  function draw() {
    drawn ??= requestAnimationFrame(() => {
      drawn = null;
      slider.max = last();
      slider.value = at;
      slider.setAttribute("aria-valuetext", `step ${at} of ${last()} of both sides`);
      button.textContent = playing ? "Pause" : "Play";
      button.setAttribute("aria-pressed", String(playing));
      const start = performance.now();
      stage.show(race, at);
      rest = performance.now() + 2 * (performance.now() - start);
    });
  }

  function tick(now) {
    if (!playing) return;
    if (pace() === 0) at = last();
    else {
      due = Math.max(due, now - 1000);
      while (due < now && at < last()) { at++; due += 1000 / pace(); }
      if (at === last()) due = now;
    }
    if (at === last() && race.ended) playing = false;
    // Long answers take long to draw: two thirds of the time stay free for everything else.
    if (now >= rest || !playing) draw();
    if (playing) requestAnimationFrame(tick);
  }

  function start() {
    if (playing) return;
    if (at === last() && race.ended) at = 0;
    playing = true;
    due = performance.now();
    requestAnimationFrame(tick);
  }

  function pause() { playing = false; draw(); }
  function go(to) { at = Math.max(0, Math.min(to, last())); pause(); }
  const toggle = () => (playing ? pause() : start());

  slider.addEventListener("input", () => go(Number(slider.value)));
  button.addEventListener("click", toggle);
  byId("player").addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target === slider) return;
    const keys = { ArrowLeft: () => go(at - 1), ArrowRight: () => go(at + 1), Home: () => go(0), End: () => go(last()) };
    if (event.key === " " && event.target !== button) keys[" "] = toggle;
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
  for (const each of document.querySelectorAll("[data-map]")) {
    each.addEventListener("click", () => { stage.choose(each.dataset.map); draw(); });
  }
  addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  byId("theme").addEventListener("click", draw);
  document.addEventListener("keydown", (event) => { if (event.key === "d" && !isTyping(event.target)) draw(); });

  return {
    // Begin with a race of which nothing has come yet, or with one that is whole.
    open(other) { race = other; at = race.ended ? last() : 0; playing = false; if (race.ended) draw(); else start(); },
    redraw: draw,
    get race() { return race; },
  };
})();
