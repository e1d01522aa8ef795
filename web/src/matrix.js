// [data-matrix]: the table of rights says how many of them were changed, before they are applied.

import { counted } from "./words.js";

const RANK = ["", "reader", "writer"];

function say(form) {
  const cells = [...form.querySelectorAll("select[data-was]")];
  const changed = cells.filter((cell) => cell.value !== cell.dataset.was);
  const less = changed.filter((cell) => RANK.indexOf(cell.value) < RANK.indexOf(cell.dataset.was));
  const renewed = new Set(less.map((cell) => cell.closest("td").cellIndex)).size;
  for (const cell of cells) cell.classList.toggle("changed", changed.includes(cell));
  const keys = renewed ? `: ${counted(renewed, "dataset gets", "datasets get")} a new key` : "";
  form.querySelector("[data-changes]").textContent = changed.length
    ? counted(changed.length, "change") + keys
    : "";
}

export function countChanges() {
  document.addEventListener("change", ({ target }) => {
    const form = target.closest("form[data-matrix]");
    if (form) say(form);
  });
}
