// The line that asks: while somebody types, the page says what may come next, as a list that arrow
// keys go through (the combobox pattern of ARIA). Without this file the line is a field like others.

import { post } from "./session.js";
import { countAnswer } from "./strip.js";
import { isComposing } from "./typing.js";

const AFTER_MS = 120;

let waiting = 0;
let asked = null;
/** What stood in the line when the list was made. */
let listed = "";

const line = () => document.getElementById("line");
const list = () => document.getElementById("line-list");
const options = () => [...list().children];
const chosen = () => list().querySelector("[aria-selected=true]");

function close() {
  clearTimeout(waiting);
  asked?.abort();
  if (!line()) return;
  list().hidden = true;
  list().replaceChildren();
  line().setAttribute("aria-expanded", "false");
  line().removeAttribute("aria-activedescendant");
  document.getElementById("line-hint").textContent = "";
}

function choose(option) {
  chosen()?.setAttribute("aria-selected", "false");
  option.setAttribute("aria-selected", "true");
  option.scrollIntoView({ block: "nearest" });
  line().setAttribute("aria-activedescendant", option.id);
}

/** Ask for what may come next where the caret is. */
async function ask() {
  const field = line();
  asked?.abort();
  asked = new AbortController();
  const { signal } = asked;
  const [text, caret] = [field.value, field.selectionEnd];
  const fieldsOf = () => {
    const body = new URLSearchParams(new FormData(field.form));
    // Counted in the proxy's characters, not in UTF-16.
    body.set("caret", [...text.slice(0, caret)].length);
    return body;
  };
  // A box over the page would take the keys that are being typed.
  const answer = await post(field.dataset.complete, fieldsOf, { signal, logsIn: false });
  countAnswer(answer);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const part = page.querySelector(".part[data-at]");
  const isOld = !line() || line() !== document.activeElement || line().value !== text;
  if (isOld) return;
  // An answer without completions is one that says what is wrong.
  if (!part) return close();
  listed = text;
  const found = [...part.querySelectorAll("li")].map((one) => document.adoptNode(one));
  list().replaceChildren(...found);
  list().dataset.at = [...text].slice(0, part.dataset.at).join("").length;
  list().dataset.end = caret;
  list().hidden = !found.length;
  line().setAttribute("aria-expanded", String(found.length > 0));
  line().removeAttribute("aria-activedescendant");
  const hint = part.querySelector("p").textContent;
  const many = `${found.length} ${found.length === 1 ? "completion" : "completions"}`;
  const place = document.getElementById("line-hint");
  place.textContent = hint || (found.length ? many : "");
  place.classList.toggle("hidden", !hint);
}

function askSoon() {
  clearTimeout(waiting);
  waiting = setTimeout(() => ask().catch(() => {}), AFTER_MS);
}

function take(option) {
  const field = line();
  // Something was typed since, whose list is on its way.
  if (field.value !== listed) return;
  const { at, end } = list().dataset;
  field.setRangeText(option.dataset.text, Number(at), Number(end), "end");
  close();
  askSoon();
}

function onKey(event) {
  if (event.target.id !== "line" || isComposing(event)) return;
  const all = list().hidden || line().value !== listed ? [] : options();
  const here = all.indexOf(chosen());
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    if (!all.length) askSoon();
    else if (event.key === "ArrowDown") choose(all[(here + 1) % all.length]);
    else choose(all.at(here < 1 ? -1 : here - 1));
  } else if (event.key === "Escape") {
    // Also a list that is on its way.
    if (!list().hidden) event.preventDefault();
    close();
  } else if ((event.key === "Enter" || event.key === "Tab") && here >= 0 && !event.shiftKey) {
    event.preventDefault();
    take(all[here]);
  }
}

/** The caret stands where the line ceases to make sense. */
function showPlace() {
  const field = document.querySelector("#line[data-wrong-at]");
  if (!field) return;
  const at = [...field.value].slice(0, field.dataset.wrongAt).join("").length;
  // Once: a record that opens later has the focus.
  delete field.dataset.wrongAt;
  field.focus();
  field.setSelectionRange(at, at);
}

export function completeLine() {
  document.addEventListener("input", ({ target }) => target.id === "line" && askSoon());
  document.addEventListener("keydown", onKey);
  document.addEventListener("focusout", ({ target }) => target.id === "line" && close());
  // Before the field loses its focus.
  document.addEventListener("mousedown", (event) => {
    const option = event.target.closest?.("#line-list [role=option]");
    if (!option) return;
    event.preventDefault();
    take(option);
  });
  document.addEventListener("submit", close, true);
  document.addEventListener("htmx:afterSettle", showPlace);
}
