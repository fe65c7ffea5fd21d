// Flipped samples: one page of them at a time, however many there are.
(() => {
  if (!byId("flips")) return;
  const PAGE = 10;
  const task = byId("flip-task"), configuration = byId("flip-configuration"), direction = byId("flip-direction");
  const search = byId("flip-search"), list = byId("flip-list");
  let page = 0;
  let found = [];

  const group = () => data.flips[task.value];
  const chosen = () => group().configurations[configuration.value];

  function options(select, names) {
    select.replaceChildren(...names.map((name, index) => element("option", { value: index, text: name })));
  }

  function pick() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const samples = group().samples;
    found = chosen().flips.filter(([place, gained, answer]) => {
      if (direction.value !== "" && gained !== Number(direction.value)) return false;
      if (!words.length) return true;
      const text = `${samples[place].join("\n")}\n${answer}`.toLowerCase();
      return words.every((word) => text.includes(word));
    });
    page = 0;
    show();
  }

  function answerBox(name, words, right) {
    const box = element("div", { class: right ? "right" : "wrong" });
    const pre = element("pre");
    for (const [text, shared] of words) pre.append(shared ? text : element("mark", { text }));
    box.append(element("h5", { text: `${name}: ${right ? "right" : "wrong"}` }), pre);
    return box;
  }

  function item([place, gained, answer]) {
    const [id, prompt, target, first] = group().samples[place];
    const heading = element("h4", { text: id });
    heading.append(element("span", { class: `direction ${gained ? "gained" : "lost"}`, text: gained ? "gained" : "lost" }));
    const question = element("details", { class: "question" }, element("summary", { text: "Question and target" }));
    question.append(element("pre", { text: prompt }), element("pre", { text: `Target: ${target}` }));
    const answers = element("div", { class: "answers" });
    const [before, after] = compareWords(first, answer);
    answers.append(
      answerBox(group().control, before, !gained),
      answerBox(chosen().names[0], after, Boolean(gained)),
    );
    return element("li", { class: "flip" }, heading, question, answers);
  }

  function show() {
    const pages = Math.max(1, Math.ceil(found.length / PAGE));
    page = Math.max(0, Math.min(page, pages - 1));
    list.replaceChildren(...found.slice(page * PAGE, (page + 1) * PAGE).map(item));
    list.start = page * PAGE + 1;
    byId("flip-page").textContent = `Page ${counted(page + 1)} of ${counted(pages)}`;
    byId("flip-previous").disabled = page === 0;
    byId("flip-next").disabled = page === pages - 1;
    const one = chosen();
    const alike = one.names.length > 1 ? ` ${one.names.join(", ")} answered alike.` : "";
    const rest = one.left_out
      ? ` ${counted(one.left_out)} more are not in this file; unmask compare ${group().control_run} ${one.run} lists them.`
      : "";
    byId("flip-count").textContent =
      `${counted(found.length)} of ${counted(one.total)} flipped samples; ${counted(one.changed)} of ${counted(one.rows)} ` +
      `answers differ in their text.${alike}${rest}`;
  }

  function turn(by) {
    page += by;
    show();
    byId("flips").scrollIntoView();
  }

  function fill() {
    options(configuration, group().configurations.map((one) => `${one.names.join(" = ")} (${counted(one.total)})`));
    pick();
  }

  options(task, data.flips.map((one) => (data.flips.some((two) => two.experiment !== one.experiment) ? `${one.experiment}: ${one.task}` : one.task)));
  task.addEventListener("change", fill);
  configuration.addEventListener("change", pick);
  direction.addEventListener("change", pick);
  search.addEventListener("input", pick);
  byId("flip-controls").addEventListener("submit", (event) => event.preventDefault());
  byId("flip-previous").addEventListener("click", () => turn(-1));
  byId("flip-next").addEventListener("click", () => turn(1));
  fill();
})();
