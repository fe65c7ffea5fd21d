// The settings: presets, sentences beside fields, decoding, stopping, saving. A saved page has its race and no server.
(() => {
  const page = document.documentElement.outerHTML.replace(/^<html([^>]*) data-theme="\w+"/, "<html$1");
  const form = byId("form"), status = byId("status"), prompt = byId("prompt"), question = byId("question");
  const fields = [...document.querySelectorAll("[data-field]")];
  const token = new URLSearchParams(location.search).get("token") ?? "";
  let running = null;

  function asked() {
    const sides = [{}, {}];
    for (const field of fields) {
      const [side, name] = field.dataset.field.split(".");
      if (field.value.trim()) sides[side === "A" ? 0 : 1][name] = field.value;
    }
    return { prompt: prompt.value, sides, chat: byId("chat").checked, max_new_tokens: byId("max_new_tokens").value };
  }

  function complain(sentences) {
    for (const box of document.querySelectorAll("[data-error]")) {
      const sentence = sentences[box.dataset.error];
      box.hidden = !sentence;
      box.textContent = sentence ?? "";
      const field = box.parentNode.querySelector("input, select, textarea");
      if (field && box.dataset.error !== "all") field.setAttribute("aria-invalid", String(Boolean(sentence)));
      if (sentence) box.closest("details")?.setAttribute("open", "");
    }
  }

  const send = (path, signal) => fetch(path, {
    method: "POST", signal, body: JSON.stringify(asked()),
    headers: { "Content-Type": "application/json", "X-Unmask-Token": token },
  });

  async function refused(response) {
    if (response.ok) return false;
    const answer = await response.json();
    complain(answer.fields ?? { all: answer.error });
    return true;
  }

  async function check() {
    try {
      const response = await send("check");
      if (!(await refused(response))) complain({});
    } catch { complain({ all: "The server does not answer: start `unmask play` again." }); }
  }

  async function* events(response) {
    let rest = "";
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) yield JSON.parse(line);
    }
  }

  async function decode() {
    running?.abort();
    const mine = running = new AbortController();
    const race = Object.assign(raceModel.empty(), { prompt: prompt.value, target: data.questions[question.value]?.target ?? "" });
    busy(true, "Starting …");
    try {
      const response = await send("decode", mine.signal);
      if (await refused(response)) { busy(false, "Nothing was decoded: see the sentences beside the settings."); return; }
      complain({});
      for await (const event of events(response)) {
        if (mine !== running) return;
        if (event.event === "loading") status.textContent = `Loading ${event.model} …`;
        if (event.event === "ready") { status.textContent = "Decoding …"; raceModel.add(race, event); player.open(race); requestAnimationFrame(() => status.parentNode.scrollIntoView()); }
        else raceModel.add(race, event);
      }
      if (!race.ended) complain({ all: race.failed[0] ?? "The server ended the decoding." });
      finish(race, race.failed.find(Boolean) ?? "Done.");
    } catch (error) {
      if (mine !== running) return;
      if (error.name !== "AbortError") complain({ all: "The server does not answer: start `unmask play` again." });
      finish(race, "Stopped.");
    }
  }

  function finish(race, sentence) {
    race.ended = true;
    busy(false, sentence);
    player.redraw();
  }

  function busy(is, sentence) {
    byId("stop").disabled = !is;
    byId("save").disabled = is || !player.race.order.length;
    status.textContent = sentence;
  }

  // The page as it came, with the race in place of no race: nothing is asked of any server.
  function save() {
    const kept = { ...data, race: player.race, page: asked() };
    const json = JSON.stringify(kept).replaceAll("<", "\\u003c");
    const mark = '<script type="application/json" id="data">';
    const start = page.indexOf(mark) + mark.length;
    const text = `<!doctype html>\n${page.slice(0, start)}${json}${page.slice(page.indexOf("<" + "/script>", start))}\n`;
    const link = element("a", { href: URL.createObjectURL(new Blob([text], { type: "text/html" })), download: "unmask-play.html" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  }

  function fill(settings) {
    for (const field of fields) {
      const [side, name] = field.dataset.field.split(".");
      field.value = settings[side === "A" ? 0 : 1][name] ?? "";
      if (field.value) field.closest("details")?.setAttribute("open", "");
    }
  }

  function take(number) {
    const preset = data.presets[number];
    fill([preset.a, preset.b]);
    byId("look").textContent = preset.look;
    byId("look").hidden = false;
    for (const button of document.querySelectorAll(".preset")) button.setAttribute("aria-pressed", String(Number(button.dataset.preset) === number));
    complain({});
  }

  function pick(number) {
    question.value = number;
    prompt.value = data.questions[number].prompt;
  }

  function changed() {
    byId("look").hidden = true;
    for (const button of document.querySelectorAll(".preset")) button.setAttribute("aria-pressed", "false");
    check();
  }

  if (data.race) {
    document.body.classList.add("saved");
    prompt.value = data.page.prompt;
    fill(data.page.sides);
    for (const field of form.querySelectorAll("input, select, textarea")) field.disabled = field !== byId("pace");
    status.textContent = "A decoding that was saved; press Play to see it again.";
    player.open(data.race);
    return;
  }
  pick(0);
  take(0);
  form.addEventListener("submit", (event) => { event.preventDefault(); decode(); });
  byId("stop").addEventListener("click", () => running?.abort());
  byId("save").addEventListener("click", save);
  question.addEventListener("change", () => { if (question.value !== "") pick(Number(question.value)); });
  prompt.addEventListener("input", () => { question.value = ""; });
  for (const button of document.querySelectorAll(".preset")) button.addEventListener("click", () => { take(Number(button.dataset.preset)); check(); });
  for (const field of fields) field.addEventListener("change", changed);
  for (const name of ["prompt", "max_new_tokens", "chat"]) byId(name).addEventListener("change", check);
})();
