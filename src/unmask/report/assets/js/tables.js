// Tables: a heading sorts, the filter hides rows.
(() => {
  const tables = [...document.querySelectorAll("table[data-sortable]")];

  function value(row, column) {
    const cell = row.cells[column];
    const text = cell.dataset.sort ?? cell.textContent.trim();
    const number = Number(text.replaceAll(",", "").replace("\u2212", "-"));
    if (text === "" || text === "–") return null;
    return Number.isNaN(number) ? text.toLowerCase() : number;
  }

  function compare(one, two) {
    if (typeof one === "number" && typeof two === "number") return one - two;
    return String(one).localeCompare(String(two), "en", { numeric: true });
  }

  function sort(table, column) {
    const heading = table.tHead.rows[0].cells[column];
    const descending = heading.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const rows = [...table.tBodies[0].rows].map((row) => [value(row, column), row]);
    // What is not known stays at the end whichever way the rest is sorted.
    rows.sort(([one], [two]) => {
      if (one === null || two === null) return (one === null) - (two === null);
      return descending ? compare(two, one) : compare(one, two);
    });
    table.tBodies[0].append(...rows.map(([, row]) => row));
  }

  for (const table of tables) {
    [...table.tHead.rows[0].cells].forEach((heading, column) => {
      const button = element("button", { type: "button" });
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => sort(table, column));
    });
  }

  byId("filter").addEventListener("input", (event) => {
    const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const table of tables) {
      for (const row of table.tBodies[0].rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
      }
    }
  });
})();
