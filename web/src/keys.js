// Keys: Ctrl-K (Cmd-K) opens Find over the page, "?" lists the keys, "/" goes to the line that
// asks, "g" and a letter go to a page. Keys without Ctrl can be switched off, for those who speak
// to their computer; this browser remembers that.

import htmx from "htmx.org";
import { at } from "./paths.js";
import { ask } from "./session.js";
import { toast } from "./toast.js";

const OFF = "keys";
const PAGES = { h: "/", d: "/datasets/", q: "/sql/", j: "/jobs/", k: "/keyring/", o: "/organizations/" };
const LIST = [
  ["Ctrl K", "find a dataset, a schema or a page"],
  ["Ctrl Enter", "run the statement"],
  ["/", "go to the search line, or to Find"],
  ["s", "show what the server has of the records"],
  ["z", "undo what was just saved"],
  ["j, k", "next and previous row of a table"],
  ["g h", "overview"],
  ["g d", "datasets"],
  ["g q", "SQL"],
  ["g j", "jobs"],
  ["g k", "keyring"],
  ["?", "this list"],
  ["Esc", "close what is open"],
];

function dialogOf(name, label) {
  document.querySelector(`dialog.${name}`)?.remove();
  const box = document.createElement("dialog");
  box.className = name;
  box.setAttribute("aria-label", label);
  box.addEventListener("close", () => box.remove());
  box.addEventListener("click", (event) => {
    if (event.target === box) box.close(); // beside it
  });
  document.body.append(box);
  return box;
}

async function openPalette() {
  if (document.querySelector("dialog[open]")) return;
  // Keys that are typed before the answer comes are for this field, and for no shortcut.
  const box = dialogOf("palette", "Find");
  const early = document.createElement("input");
  early.setAttribute("aria-label", "Find");
  box.append(early);
  box.showModal();
  early.focus();
  const answer = await ask(`${at}/datasets/`).catch(() => null);
  // Another page would not answer either, and take what was typed along.
  if (!answer) {
    box.close();
    return toast("The proxy does not answer.");
  }
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const form = page.querySelector("#find");
  const results = page.querySelector("#find-results");
  if (!box.isConnected) return; // closed meanwhile
  if (!form || !results) {
    location.assign(`${at}/datasets/`);
    return;
  }
  const field = form.querySelector("input[name=wanted]");
  field.value = early.value;
  box.replaceChildren(document.adoptNode(form), document.adoptNode(results));
  htmx.process(box);
  box.addEventListener("keydown", moveThrough);
  form.addEventListener("submit", (event) => {
    const first = box.querySelector("#find-results a");
    if (!first) return;
    event.preventDefault();
    event.stopPropagation();
    first.click();
  }, true);
  field.focus();
  if (field.value) field.dispatchEvent(new Event("input", { bubbles: true }));
}

/** Arrow keys go from the field to the results and among them. */
function moveThrough(event) {
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  const box = event.currentTarget;
  const stops = [box.querySelector("input[name=wanted]"), ...box.querySelectorAll("#find-results a")];
  const here = Math.max(0, stops.indexOf(document.activeElement));
  const next = here + (event.key === "ArrowDown" ? 1 : -1);
  event.preventDefault();
  stops[Math.min(Math.max(next, 0), stops.length - 1)].focus();
}

/** The page that the lane in the band leads to, as a box over this one. */
async function openRequests(link) {
  const box = dialogOf("requests", "The last requests to the server");
  const headers = { "HX-Target": "requests" };
  const answer = await ask(link.href, { headers }).catch(() => null);
  if (!answer) {
    box.remove();
    return toast("The proxy does not answer.");
  }
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const list = page.querySelector("#requests");
  if (!list) return location.assign(link.href);
  const heading = document.createElement("h2");
  heading.textContent = box.getAttribute("aria-label");
  const close = document.createElement("button");
  close.textContent = "Close";
  close.addEventListener("click", () => box.close());
  box.append(heading, document.adoptNode(list), close);
  box.showModal();
  close.focus();
}

function openList() {
  const box = dialogOf("help-keys", "Keys");
  const heading = document.createElement("h2");
  heading.textContent = "Keys";
  const list = document.createElement("dl");
  list.className = "keys";
  for (const [keys, what] of LIST) {
    const term = document.createElement("dt");
    const key = document.createElement("kbd");
    key.textContent = keys;
    term.append(key);
    const text = document.createElement("dd");
    text.textContent = what;
    list.append(term, text);
  }
  const label = document.createElement("label");
  label.className = "check";
  const choice = document.createElement("input");
  choice.type = "checkbox";
  choice.checked = localStorage.getItem(OFF) !== "off";
  choice.addEventListener("change", () => {
    if (choice.checked) localStorage.removeItem(OFF);
    else localStorage.setItem(OFF, "off");
  });
  label.append(choice, " Keys without Ctrl are on");
  const close = document.createElement("button");
  close.textContent = "Close";
  close.addEventListener("click", () => box.close());
  box.append(heading, list, label, document.createElement("p"), close);
  box.showModal();
}

function moveRow(step) {
  const rows = [...document.querySelectorAll("main table tbody tr")].filter((row) => row.querySelector("a[href]"));
  if (!rows.length) return;
  const here = rows.findIndex((row) => row.contains(document.activeElement));
  const next = here < 0 ? 0 : Math.min(Math.max(here + step, 0), rows.length - 1);
  rows[next].querySelector("a[href]").focus();
}

/** The message that goes away has the last change; the page has an older one. */
function undo() {
  const newest = document.querySelector("[data-undo]") ?? document.querySelector("[data-changed] button");
  newest?.click();
}

let awaitsPage = false;

function pressed(event) {
  const { key } = event;
  if ((event.ctrlKey || event.metaKey) && !event.altKey && key.toLowerCase() === "k") {
    event.preventDefault();
    openPalette();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (localStorage.getItem(OFF) === "off" && key !== "?") return;
  if (event.target.closest?.("input, textarea, select, [contenteditable], dialog")) return;
  const page = awaitsPage ? PAGES[key] : undefined;
  awaitsPage = key === "g" && !page;
  if (page) location.assign(at + page);
  else if (key === "?") openList();
  else if (key === "z") undo();
  else if (key === "j") moveRow(1);
  else if (key === "k") moveRow(-1);
  else if (key === "/") {
    const field = document.getElementById("line");
    event.preventDefault();
    if (field) field.focus();
    else openPalette();
  }
}

export function listenToKeys() {
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("[data-requests]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    if (!document.querySelector("dialog")) openRequests(link);
  });
  if (!document.querySelector("[data-palette]")) return;
  for (const element of document.querySelectorAll("[data-modifier-key]"))
    if (/Mac|iPhone|iPad/.test(navigator.platform)) element.textContent = "⌘ K";
  for (const element of document.querySelectorAll("[data-palette]"))
    element.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      openPalette();
    });
  document.addEventListener("keydown", pressed);
}
