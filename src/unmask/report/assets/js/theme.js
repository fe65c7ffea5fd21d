// Light or dark: as the system has it, until the switch says otherwise.
(() => {
  const root = document.documentElement;
  const button = byId("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const memory = {
    read() { try { return localStorage.getItem("unmask-theme"); } catch { return null; } },
    write(value) { try { localStorage.setItem("unmask-theme", value); } catch { /* a file may not remember */ } },
  };
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const show = () => button.setAttribute("aria-pressed", String(isDark()));
  const kept = memory.read();
  if (kept === "light" || kept === "dark") root.dataset.theme = kept;
  function turn() {
    root.dataset.theme = isDark() ? "light" : "dark";
    memory.write(root.dataset.theme);
    show();
  }
  button.addEventListener("click", turn);
  system.addEventListener("change", show);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (event.key === "d") turn();
    if (event.key === "/" && byId("filter")) { event.preventDefault(); byId("filter").focus(); }
  });
  show();
})();
