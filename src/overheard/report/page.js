"use strict";
(() => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  document.documentElement.classList.add("js");

  // Sorting: every heading of a sortable table becomes a button.
  const text = new Intl.Collator(undefined, { numeric: true }).compare;
  const valueOf = (row, column) => {
    const cell = row.cells[column];
    if (cell.dataset.v !== undefined) return Number(cell.dataset.v);
    const shown = cell.textContent.trim();
    if (shown === "–") return -Infinity;
    return /^[-−+]?[0-9]/.test(shown) ? parseFloat(shown.replace("−", "-")) : shown;
  };
  for (const table of all("table.sortable")) {
    all("thead th", table).forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") !== "descending";
        all("thead th", table).forEach((h) => h.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const body = table.tBodies[0];
        const rows = [...body.rows].sort((a, b) => {
          const [x, y] = [valueOf(a, column), valueOf(b, column)];
          const order = typeof x === "number" && typeof y === "number" ? x - y : text(String(x), String(y));
          return down ? -order : order;
        });
        body.append(...rows);
      });
    });
  }

  // Filtering: by client it hides rows and tables, by attack also dims the chart's other lanes.
  const controls = document.getElementById("controls");
  if (controls) {
    const [client, attack] = all("select", controls);
    const state = document.getElementById("filter-state");
    const apply = () => {
      for (const part of all("[data-c]")) {
        part.hidden = client.value !== "" && part.dataset.c !== client.value;
      }
      for (const part of all("[data-a]")) {
        const off = attack.value !== "" && part.dataset.a !== attack.value;
        if (part.tagName === "TR") part.hidden = off;
        else part.classList.toggle("dim", off);
      }
      for (const figure of all("[data-attacks]")) {
        const has = figure.dataset.attacks.split(" ");
        figure.hidden = attack.value !== "" && !has.includes(attack.value);
      }
      for (const table of all("table.results")) {
        table.parentElement.hidden = [...table.tBodies[0].rows].every((row) => row.hidden);
      }
      const chosen = [client, attack].filter((s) => s.value).map((s) => s.selectedOptions[0].text);
      state.textContent = chosen.length ? "Showing only " + chosen.join(", ") + "." : "";
      if (attack.value) state.textContent += " This table keeps the strongest attack.";
      if (client.value) all("details.client:not([hidden])").forEach((d) => (d.open = true));
    };
    for (const select of [client, attack]) select.addEventListener("change", apply);
    document.getElementById("reset").addEventListener("click", () => {
      client.value = attack.value = "";
      apply();
    });
    controls.hidden = false;
  }

  // On a phone the tables of clients are drawn as cards: folded, and still tables to a reader.
  const roles = { TABLE: "table", THEAD: "rowgroup", TBODY: "rowgroup", TR: "row", TD: "cell" };
  for (const table of all("table.results")) {
    for (const part of [table, ...all("*", table)]) {
      const role = part.tagName === "TH" ? part.scope + "header" : roles[part.tagName];
      if (role) part.setAttribute("role", role === "colheader" ? "columnheader" : role);
    }
  }
  if (matchMedia("(max-width: 40rem)").matches) all("details.client").forEach((d) => (d.open = false));

  // Printing shows what is folded.
  addEventListener("beforeprint", () => all("section > details").forEach((d) => (d.open = true)));
})();
