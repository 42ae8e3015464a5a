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

  // Filtering: what says of itself a client (c), attack (a), secret (t) or level (l) is shown only
  // if it is the one chosen. A chart's other lanes are dimmed, not taken away.
  const controls = document.getElementById("controls");
  if (controls) {
    const selects = all("select", controls);
    const state = document.getElementById("filter-state");
    const parts = all("[data-c], [data-a], [data-t], [data-l]").filter((p) => !controls.contains(p));
    const apply = () => {
      const chosen = selects.filter((s) => s.value !== "");
      const is = (key) => selects.find((s) => s.dataset.by === key).value;
      const off = (part, key) => {
        const value = part.dataset[key];
        return value !== undefined && is(key) !== "" && value !== is(key);
      };
      for (const part of parts) {
        const mark = part.matches("g, li");
        part.classList.toggle("dim", mark && off(part, "a"));
        part.hidden = ["c", "t", "l"].some((key) => off(part, key)) || (!mark && off(part, "a"));
        const lanes = part.dataset.attacks;
        if (lanes !== undefined && is("a") !== "" && !lanes.split(" ").includes(is("a"))) part.hidden = true;
      }
      for (const table of all("table.results")) {
        table.parentElement.hidden = [...table.tBodies[0].rows].every((row) => row.hidden);
      }
      state.textContent = chosen.length
        ? "Showing only " + chosen.map((s) => s.selectedOptions[0].text).join(", ") + "."
        : "";
      if (is("c")) all("details.client:not([hidden])").forEach((d) => (d.open = true));
    };
    for (const select of selects) select.addEventListener("change", apply);
    document.getElementById("reset").addEventListener("click", () => {
      for (const select of selects) select.value = "";
      apply();
    });
    controls.hidden = false;
  }

  // Hovering over a mark says what it is; its words stay with it for those who do not point.
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  tip.setAttribute("aria-hidden", "true");
  document.body.append(tip);
  for (const mark of all(".plot g")) {
    const title = all(":scope > title", mark)[0];
    if (!title) continue;
    const label = title.textContent;
    title.remove();
    mark.dataset.tip = label;
    mark.addEventListener("pointermove", (event) => {
      tip.textContent = label;
      tip.hidden = false;
      const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
      tip.style.left = Math.max(8, Math.min(event.clientX + 12, room)) + "px";
      tip.style.top = event.clientY + 16 + "px";
    });
    mark.addEventListener("pointerleave", () => (tip.hidden = true));
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

  // A link into the annex unfolds what it leads to; printing shows what is folded.
  const unfold = () => {
    const part = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    const inside = part && (part.querySelector(":scope > details") || part.closest("details"));
    if (inside) inside.open = true;
    if (part) part.scrollIntoView();
  };
  addEventListener("hashchange", unfold);
  unfold();
  addEventListener("beforeprint", () => all(".annex, .annex > details").forEach((d) => (d.open = true)));
})();
