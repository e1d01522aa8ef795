// Widths of columns: dragged at the right edge of a head, or changed in the menu of a column. This
// browser keeps them, by schema and by the place of the field; a double click on the edge forgets one.

import htmx from "htmx.org";

const LEAST = 48;
const STEP = 24;
/** Pixels at the right edge of a head that take the mouse, as in records.css. */
const EDGE = 8;

const tableOf = () => document.querySelector("table.records");
const placeOf = (head) => head.querySelector("[id^=sort-]")?.id.slice("sort-".length);
const headOf = (place) => document.getElementById(`sort-${place}`)?.closest("th");
const keyOf = () => `widths ${/schemas\/([^/]+)/.exec(location.pathname)?.[1]}`;
const kept = () => JSON.parse(localStorage.getItem(keyOf()) ?? "{}");
const keep = (widths) => localStorage.setItem(keyOf(), JSON.stringify(widths));

/** From here on each column is as wide as its element of `colgroup` says; at first as it was. */
function sized(table) {
  if (table.querySelector("colgroup")) return table;
  const group = document.createElement("colgroup");
  for (const cell of table.tHead.rows[0].cells) {
    const column = document.createElement("col");
    column.width = Math.ceil(cell.getBoundingClientRect().width);
    group.append(column);
  }
  table.prepend(group);
  table.classList.add("sized");
  return table;
}

function resize(head, width) {
  const columns = sized(head.closest("table")).querySelectorAll("col");
  columns[head.cellIndex].width = Math.max(LEAST, Math.round(width));
}

const widthOf = (head) => head.getBoundingClientRect().width;

function draw() {
  const known = Object.entries(kept()).filter(([place]) => headOf(place));
  tableOf()?.querySelector("colgroup")?.remove();
  tableOf()?.classList.remove("sized");
  for (const [place, width] of known) resize(headOf(place), width);
}

function remember(head) {
  keep({ ...kept(), [placeOf(head)]: Math.round(widthOf(head)) });
}

/** The head whose edge the mouse is at. */
function edgeAt({ target, clientX }) {
  const head = target.closest?.("table.records thead th:not(:first-child)");
  return head && head.getBoundingClientRect().right - clientX <= EDGE ? head : null;
}

let dragged = null;

function onDown(event) {
  const head = event.button === 0 ? edgeAt(event) : null;
  if (!head) return;
  event.preventDefault();
  dragged = { head, from: event.clientX - widthOf(head) };
}

function onUp() {
  if (dragged) remember(dragged.head);
  dragged = null;
}

/** The menu of a column, when it opens. */
function offer({ target: menu, newState }) {
  const place = /^menu-(\d+)$/.exec(menu.id)?.[1];
  if (!place || newState !== "open" || menu.querySelector("[data-width]")) return;
  for (const [text, step] of [["Wider", STEP], ["Narrower", -STEP]]) {
    const button = document.createElement("button");
    Object.assign(button, { type: "button", textContent: text });
    button.dataset.width = step;
    button.addEventListener("click", () => {
      resize(headOf(place), widthOf(headOf(place)) + step);
      remember(headOf(place));
    });
    menu.append(button);
  }
}

export function useWidths() {
  document.addEventListener("pointerdown", onDown);
  document.addEventListener("pointermove", ({ clientX }) => dragged && resize(dragged.head, clientX - dragged.from));
  document.addEventListener("pointerup", onUp);
  document.addEventListener("beforetoggle", offer, true);
  document.addEventListener("dblclick", (event) => {
    const head = edgeAt(event);
    if (!head) return;
    const { [placeOf(head)]: _, ...others } = kept();
    keep(others);
    draw();
  });
  htmx.onLoad(draw);
}
