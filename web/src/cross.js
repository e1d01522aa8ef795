// Two fields against each other: the head of a picture dragged onto another picture, or two fields chosen
// by keys in the box beside records. On the page of all pictures the form for it is there without this
// file, too.

import htmx from "htmx.org";

const PLACES = ".facets section, .look > .card:has([data-facet])";

/** The place of a picture's field in the schema, as the picture's id has it. */
const positionOf = (place) => place.id.replace(/^\D+/, "");

const placeOf = (target) => target.closest?.(PLACES) ?? null;

/** The picture whose head is dragged. */
let dragged = null;

/** The box beside records has the fields of the pictures there. */
function fill(box) {
  for (const [at, select] of [...box.querySelectorAll("select")].entries()) {
    if (select.options.length) continue;
    for (const place of document.querySelectorAll(".facets section"))
      select.add(new Option(place.querySelector("h2").textContent, positionOf(place)));
    select.selectedIndex = Math.min(at, select.options.length - 1);
  }
}

function draw(down, across) {
  const box = document.getElementById("pair-box");
  if (box) {
    fill(box);
    box.showPopover({ source: document.getElementById("pair-button") });
  }
  document.getElementById("down").value = down;
  document.getElementById("across").value = across;
  const button = document.getElementById("draw-pair");
  button.click();
  button.focus();
}

function unmark() {
  for (const place of document.querySelectorAll(`:is(${PLACES}).over`)) place.classList.remove("over");
}

export function crossFields() {
  document.addEventListener("dragstart", (event) => {
    dragged = event.target.matches?.("h2[draggable]") ? placeOf(event.target) : null;
    if (!dragged) return;
    event.dataTransfer.setData("text/plain", event.target.textContent);
    event.dataTransfer.effectAllowed = "link";
  });
  document.addEventListener("dragend", () => {
    dragged = null;
    unmark();
  });
  document.addEventListener("dragover", (event) => {
    const place = dragged && placeOf(event.target);
    unmark();
    if (!place || place === dragged) return;
    event.preventDefault();
    event.dataTransfer.dropEffect = "link";
    place.classList.add("over");
  });
  document.addEventListener("drop", (event) => {
    const place = dragged && placeOf(event.target);
    if (!place || place === dragged) return;
    event.preventDefault();
    draw(positionOf(dragged), positionOf(place));
  });
  // Before, not after: keys reach an open box at once, and a field without options takes none.
  document.addEventListener(
    "beforetoggle",
    ({ target, newState }) => target.id === "pair-box" && newState === "open" && fill(target),
    true,
  );
  document.addEventListener("htmx:afterSettle", ({ target }) => {
    if (target.id === "pair-map") target.scrollIntoView({ block: "nearest" });
  });
  htmx.onLoad((root) => {
    for (const head of root.querySelectorAll(`:is(${PLACES}) > h2`)) {
      head.draggable = true;
      head.title = "Drag it onto another picture, to see the two fields against each other";
    }
    const button = root.querySelector("#pair-button");
    if (button) button.hidden = document.querySelectorAll(".facets section").length < 2;
  });
}
