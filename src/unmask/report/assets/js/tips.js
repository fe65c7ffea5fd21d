// What marks of pictures say when they are pointed at.
(() => {
  const box = byId("tip");
  function place(x, y) {
    const width = box.offsetWidth, height = box.offsetHeight;
    box.style.left = `${Math.max(6, Math.min(x + 14, innerWidth - width - 6))}px`;
    box.style.top = `${y + 18 + height > innerHeight ? Math.max(6, y - height - 12) : y + 18}px`;
  }
  document.addEventListener("pointermove", (event) => {
    const owner = event.target.closest?.("[data-tip]");
    box.hidden = !owner;
    if (!owner) return;
    if (box.textContent !== owner.dataset.tip) box.textContent = owner.dataset.tip;
    place(event.clientX, event.clientY);
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") box.hidden = true; });
  document.addEventListener("scroll", () => { box.hidden = true; }, { passive: true });
})();
