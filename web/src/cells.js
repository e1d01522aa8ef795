// A double click on a value in the table edits it there, by the control of the record's own form: Enter
// stores it, Escape leaves it. What is refused is shown beside the table, in the whole form. Without
// this file, and by keys, a record is edited beside the table.

import htmx from "htmx.org";
import { ask, post, token } from "./session.js";
import { countAnswer } from "./strip.js";
import { toast } from "./toast.js";
import { isComposing } from "./typing.js";

const documentOf = async (answer) => new DOMParser().parseFromString(await answer.text(), "text/html");

/** The place of the cell's field in the schema. */
function positionOf(cell) {
  const head = cell.closest("table").tHead.rows[0].cells[cell.cellIndex];
  return head?.querySelector("[id^=sort-]")?.id.slice("sort-".length);
}

/** The record's form with one field, in place of the value; with what the whole form would send. */
async function open(cell) {
  const link = cell.parentElement.querySelector("a");
  const position = positionOf(cell);
  const page = await ask(`${link.pathname}edit/`).then(countAnswer).then(documentOf);
  const whole = page.querySelector("#record form[data-guard]");
  const field = whole?.querySelector(`#value-${position}`)?.closest(".field");
  if (!cell.isConnected) return;
  // The page beside the table says what prevents it; an answer for it would take the editor along.
  if (!field || document.querySelector(".cell-form, #ask.htmx-request")) return link.click();
  const sent = new FormData(whole);
  const form = document.createElement("form");
  form.className = "cell-form";
  form.dataset.guard = "";
  form.dataset.action = `${link.pathname}edit/${link.search}`;
  form.append(document.adoptNode(field));
  // Its column names it, and what it takes is in the whole form.
  for (const text of field.querySelectorAll("label[for], .label, [id^=note-]")) text.classList.add("hidden");
  setApart(field);
  const before = [...cell.childNodes];
  cell.replaceChildren(form);
  const first = form.querySelector("select, textarea:not(.hidden), input:checked, input:not([type=radio])");
  first.focus();
  if (first.matches("input[type=text], textarea")) first.select();
  const shown = String(new URLSearchParams(new FormData(form)));
  const isChanged = () => String(new URLSearchParams(new FormData(form))) !== shown;
  const close = () => form.isConnected && cell.replaceChildren(...before);
  let isSent = false;
  const save = async () => {
    if (isSent) return;
    isSent = true;
    const record = await store(form, sent).catch(() => null);
    isSent = false;
    if (!record) return toast("It is not known whether your change was stored. Your text is still here: press Enter to send it again.");
    const hasFocus = form.contains(document.activeElement);
    close();
    if (hasFocus) link.focus();
    show(record);
  };
  form.addEventListener("keydown", (event) => {
    const stores = event.key === "Enter" && !event.shiftKey && !isComposing(event);
    if (!stores && event.key !== "Escape") return event.stopPropagation();
    event.preventDefault();
    event.stopPropagation();
    if (stores && isChanged()) return save();
    close();
    link.focus();
  });
  form.addEventListener("focusout", () => {
    // A control that is clicked may get the focus later (clicks.js).
    setTimeout(() => form.contains(document.activeElement) || isChanged() || close());
  });
}

/** Another record's form may stand beside the table: no two controls of a page have one id. */
function setApart(field) {
  for (const name of ["id", "for", "aria-describedby"])
    for (const element of field.querySelectorAll(`[${name}]`))
      element.setAttribute(name, `cell-${element.getAttribute(name)}`);
}

/** The record, or its form, that answers; null where neither came. */
async function store(form, sent) {
  const own = new FormData(form);
  const fieldsOf = () => {
    const body = new URLSearchParams(sent);
    for (const name of own.keys()) body.delete(name);
    for (const [name, text] of own) body.append(name, text);
    body.set("csrf", token());
    return body;
  };
  const headers = { "HX-Target": "panel" };
  const answer = await post(form.dataset.action, fieldsOf, { headers });
  return (await documentOf(answer)).querySelector("#record");
}

function show(record) {
  const done = record.querySelector("[data-changed]");
  if (done) {
    const rounded = record.querySelector("p.notice")?.textContent ?? "";
    toast(`Saved. ${rounded}`.trim(), done.querySelector("button") ? done : null);
    return document.dispatchEvent(new CustomEvent("record:changed", { detail: record }));
  }
  const panel = document.getElementById("panel");
  panel.replaceChildren(document.adoptNode(record));
  htmx.process(panel);
  panel.dispatchEvent(new CustomEvent("panel:filled", { bubbles: true }));
}

export function editCells() {
  document.addEventListener("dblclick", ({ target }) => {
    const cell = target.closest?.("table.records tbody td:not(:first-child)");
    if (!cell || target.closest("a, button, input, select, textarea, .cell-form")) return;
    getSelection().removeAllRanges();
    open(cell).catch(() => toast("The proxy does not answer."));
  });
}
