// The lens: columns that the handle has passed show what the server has of them, the others what
// people read. Both are in the table; without this file they stand below each other.

import htmx from "htmx.org";

/** How many columns the handle has passed, of this page; at first the first three, which are in view. */
let passed = null;

function draw(handle) {
  passed = Number(handle.value);
  const table = document.querySelector("table.records");
  table.classList.add("lens");
  for (const row of table.rows)
    [...row.cells].forEach((cell, at) => cell.classList.toggle("passed", at > 0 && at <= passed));
  handle.setAttribute("aria-valuetext", `${passed} of ${handle.max} columns as the server has them`);
}

export function useLens() {
  document.addEventListener("input", ({ target }) => target.id === "lens" && draw(target));
  document.addEventListener("keydown", (event) => {
    const held = event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented;
    if (event.key !== "s" || held || localStorage.getItem("keys") === "off") return;
    if (!event.target.closest?.("input, textarea, select, dialog")) document.getElementById("sealed")?.click();
  });
  htmx.onLoad(() => {
    const handle = document.querySelector("#lens:not([data-drawn])");
    if (!handle) return;
    handle.dataset.drawn = "yes";
    handle.closest("[hidden]").hidden = false;
    handle.value = passed ?? 3;
    draw(handle);
  });
}
