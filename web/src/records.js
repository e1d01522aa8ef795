// The page of records: a row opens beside the table, columns of pictures are chosen with the mouse,
// and focus and scrolling survive an answer. Forms and links do all of it without this file.

import htmx from "htmx.org";
import { showHandles } from "./handles.js";
import { at } from "./paths.js";
import { post } from "./session.js";
import { countAnswer } from "./strip.js";
import { keepText } from "./typing.js";

const panel = () => document.getElementById("panel");
const rows = () => [...document.querySelectorAll("table.records tbody tr")];

const shownRecord = () => panel()?.querySelector("[data-record]")?.dataset.record ?? "";

/** The row of a record, by the address that its number leads to. */
const rowOf = (record) =>
  rows().find((row) => row.querySelector("a").pathname.endsWith(`/records/${record}/`));

const currentRow = () => rowOf(shownRecord());

function markRow() {
  for (const row of rows()) row.classList.remove("current");
  currentRow()?.classList.add("current");
}

/** The address names the record that stands beside the table: a reload, and the browser's Back, find
 * the page as it was. Going from one record to the next is no step of its own. */
function rememberPanel({ isStep }) {
  const address = new URL(location.href);
  const [before, now] = [address.searchParams.get("record") ?? "", shownRecord()];
  if (before === now) return;
  if (now) address.searchParams.set("record", now);
  else address.searchParams.delete("record");
  const isNew = isStep && !before;
  history[isNew ? "pushState" : "replaceState"](isNew ? null : history.state, "", address);
}

/** What the address says stands beside the table. */
function followAddress() {
  const wanted = new URL(location.href).searchParams.get("record") ?? "";
  if (!panel() || wanted === shownRecord()) return;
  if (!wanted) closePanel();
  else if (/^[0-9A-Za-z]{22}$/.test(wanted)) {
    const own = new URL(location.href).searchParams.get("q");
    const path = `${at}/records/${wanted}/${own ? `?q=${encodeURIComponent(own)}` : ""}`;
    htmx.ajax("GET", path, { target: "#panel", select: "#record", swap: "innerHTML show:none" });
  }
}

/** What was typed into the record is not left behind without a question. */
const mayLeave = (typed = "#panel form[data-typed]") =>
  !document.querySelector(typed) || confirm("Leave what you typed into this record?");

function closePanel() {
  if (!mayLeave()) return;
  const link = currentRow()?.querySelector("a");
  panel().replaceChildren();
  markRow();
  rememberPanel({ isStep: false });
  link?.focus();
}

/** The record that is shown anew, which nobody has asked for. */
let reloaded = "";

/** A record beside the table is shown as it is by now, unless somebody is typing into it. */
function reloadPanel(record) {
  const shown = shownRecord();
  if (!shown || shown !== record || panel().querySelector("form[data-guard]")) return;
  reloaded = shown;
  const path = `${at}/records/${shown}/${location.search.replace(/[?&]record=[^&]*/, "")}`;
  htmx.ajax("GET", path, { target: "#panel", select: "#record", swap: "innerHTML show:none" });
}

const DOUBLE_CLICK_MS = 220;
let opening = 0;

/** The field of the record that is edited next, by its place. */
let edited = 0;

/** The table is asked for anew. Text in the line that was not asked yet stays there. */
function refreshTable() {
  const line = document.getElementById("line");
  if (!line) return;
  const { form } = line;
  // For this request alone, which is sent here or not at all.
  const listeners = {
    "htmx:configRequest": ({ detail }) => (detail.parameters.ask = ""),
    "htmx:beforeSend": () => keepText(line),
  };
  for (const [name, listener] of Object.entries(listeners)) form.addEventListener(name, listener);
  form.requestSubmit(document.getElementById("search-button"));
  for (const [name, listener] of Object.entries(listeners)) form.removeEventListener(name, listener);
}

/** A record that was changed stays in its place, also where the question would find it elsewhere by
 * now, or not at all: the next question orders records anew. `part` is its page. */
function showChange(part) {
  const fresh = part.querySelector("template[data-row]")?.content.querySelector("tr");
  const row = rowOf(part.dataset.record);
  if (!fresh || !row) return;
  if (fresh.cells.length !== row.cells.length) return refreshTable();
  // The first cell has its number, and of the tick what it stands for.
  const [tick, own] = [row, fresh].map((one) => one.querySelector("input[form=ticked]"));
  tick.value = own.value;
  [...row.cells].slice(1).forEach((cell) => cell.replaceWith(fresh.cells[1]));
  document.getElementById("lens")?.dispatchEvent(new Event("input", { bubbles: true }));
  for (const place of document.querySelectorAll(".facets [data-facet]")) observer.observe(place);
}

function onPanel() {
  markRow();
  rememberPanel({ isStep: true });
  const record = panel().querySelector("#record");
  if (record) showChange(record);
  const isAsked = !reloaded || reloaded !== shownRecord();
  reloaded = "";
  const active = document.activeElement ?? document.body;
  // A slow double click opens the record as well.
  if (active !== document.body && (!isAsked || active.closest(".cell-form"))) return;
  const form = panel().querySelector("form[data-guard]");
  const field = form?.querySelector("[aria-invalid=true]") ?? form?.querySelector(`[id=value-${edited}]`);
  if (field) (field.matches("span") ? field.querySelector("input") : field).focus();
  // The table stays where it is.
  else panel().focus({ preventScroll: true });
}

/** Arrow keys go through a menu, round and round. */
function moveInMenu(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const menu = event.target.closest?.("div[popover].menu");
  const head = event.target.matches?.("[popovertarget]") && document.getElementById(event.target.getAttribute("popovertarget"));
  const open = menu ?? (head && head.matches("div.menu:popover-open") ? head : null);
  if (!step || !open) return;
  event.preventDefault();
  const stops = [...open.querySelectorAll("button:not(:disabled), a")];
  const here = stops.indexOf(document.activeElement);
  stops.at(here < 0 ? (step > 0 ? 0 : -1) : (here + step) % stops.length).focus();
}

function onKey(event) {
  moveInMenu(event);
  if (event.ctrlKey || event.metaKey || event.altKey || !panel()) return;
  const cancel = panel().querySelector("[data-cancel]");
  if (event.key === "Escape" && cancel && panel().contains(event.target)) return cancel.click();
  if (event.target.closest("input, select, textarea, [popover]")) return;
  const inPanel = panel().contains(event.target);
  if (event.key === "Escape" && panel().firstChild) closePanel();
  else if (inPanel && event.key === "ArrowLeft") document.getElementById("previous-record")?.click();
  else if (inPanel && event.key === "ArrowRight") document.getElementById("next-record")?.click();
}

function onClick(event) {
  if (event.target.closest("[data-close-panel]")) return closePanel();
  const value = event.target.closest("#panel dd.value, #panel [data-edit]");
  // A click by this file keeps the field that was chosen.
  if (value && event.isTrusted && !String(getSelection())) {
    edited = Number(value.dataset.field ?? 0);
    if (value.matches("dd")) panel().querySelector("[data-edit]").click();
  }
  const copy = event.target.closest("[data-copy]");
  if (copy) {
    navigator.clipboard.writeText(copy.dataset.copy).then(() => (copy.textContent = "Copied"));
    return;
  }
  const row = event.target.closest("table.records tbody tr");
  const choosing = event.target.closest("a, button, input, .cell-form") || String(getSelection());
  clearTimeout(opening);
  // A second click edits the value (cells.js), which must not move away below the mouse.
  if (row && !choosing && event.detail < 2)
    opening = setTimeout(() => row.isConnected && row.querySelector("a").click(), DOUBLE_CLICK_MS);
}

// --- a stretch of columns ---------------------------------------------------------------------

/** From where the mouse went down to where it is: the chosen columns of one picture. */
let brush = null;

function columnAt(chart, x) {
  const hits = [...chart.querySelectorAll(".hits rect")];
  const past = hits.findIndex((hit) => x < hit.getBoundingClientRect().right);
  return past < 0 ? hits.length - 1 : past;
}

function drawBrush() {
  const [first, last] = [brush.start, brush.end].sort((a, b) => a - b);
  const hits = [...brush.chart.querySelectorAll(".hits rect")];
  hits.forEach((hit, at) => hit.classList.toggle("chosen", at >= first && at <= last));
  return [hits[first], hits[last]];
}

function onDown(event) {
  const chart = event.target.closest("svg[data-brush]");
  if (!chart || event.button !== 0) return;
  const at = columnAt(chart, event.clientX);
  brush = { chart, start: at, end: at };
  drawBrush();
}

function onMove(event) {
  if (!brush) return;
  brush.end = columnAt(brush.chart, event.clientX);
  drawBrush();
}

function onUp() {
  if (!brush) return;
  const [first, last] = drawBrush();
  const [from, to] = brush.chart.dataset.brush.split(" ").map((id) => document.getElementById(id));
  brush = null;
  if (from) from.value = first.dataset.low;
  if (to) to.value = last.dataset.high;
  // The form's own first button, as Enter in the field would press it.
  from?.form.requestSubmit(from.form.querySelector("button[value=search]"));
}

// --- pictures, one after another ---------------------------------------------------------------

/** Two at a time: the index answers each on its own, and what somebody asks for meanwhile goes first. */
const AT_ONCE = 2;
const waiting = [];
const leaving = new AbortController();
let loading = 0;

async function loadPicture(place) {
  const form = place.closest("form");
  const { signal } = leaving;
  const fieldsOf = () => new URLSearchParams(new FormData(form));
  const answer = countAnswer(await post(place.dataset.facet, fieldsOf, { signal }));
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const part = page.querySelector(".part");
  if (!part || !place.isConnected) return;
  place.replaceChildren(document.adoptNode(part));
  showHandles(place);
}

function loadNext() {
  while (loading < AT_ONCE && waiting.length) {
    const place = waiting.shift();
    if (!place.isConnected) continue;
    loading += 1;
    loadPicture(place)
      .catch(() => {})
      .finally(() => {
        loading -= 1;
        loadNext();
      });
  }
}

const observer = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    observer.unobserve(target);
    waiting.push(target);
  }
  loadNext();
});

function loadPictures(root) {
  const places = [...root.querySelectorAll("[data-facet]")];
  // Beside records, those that are in view; on their own page, all.
  for (const place of places)
    if (place.closest(".facets")) observer.observe(place);
    else waiting.push(place);
  loadNext();
}

// --- what survives an answer ------------------------------------------------------------------

let left = null;

function beforeSwap({ detail }) {
  if (!["search", "look", "filters"].includes(detail.target?.id)) return;
  const grid = document.getElementById("grid");
  const pressed = detail.requestConfig?.triggeringEvent?.submitter;
  left = {
    id: document.activeElement?.id,
    x: grid?.scrollLeft ?? 0,
    y: /^(next|previous)$/.test(pressed?.value ?? "") ? 0 : (grid?.scrollTop ?? 0),
  };
}

/** Focus goes where it was, or to what took that place, and never to the top of the page. */
function afterSettle() {
  if (!left) return;
  const { id, x, y } = left;
  left = null;
  document.getElementById("grid")?.scrollTo(x, y);
  markRow();
  const active = document.activeElement;
  if (active && active !== document.body && active.checkVisibility()) return;
  const candidates = [
    id && document.getElementById(id),
    id === "next" && document.getElementById("previous"),
    id === "previous" && document.getElementById("next"),
    document.getElementById("line"),
  ];
  candidates.find((one) => one && !one.disabled && one.checkVisibility())?.focus();
}

/** The other pages of the schema follow the question that this window asks now. */
function followQuestion({ detail }) {
  const query = detail.path.includes("?") ? detail.path.slice(detail.path.indexOf("?")) : "";
  const own = /^.*\/schemas\/[^/]+\//.exec(detail.path)?.[0];
  for (const link of document.querySelectorAll("nav a[href*='/schemas/']"))
    if ([`${own}search/`, `${own}overview/`].includes(link.pathname)) link.search = query;
  if (panel()) rememberPanel({ isStep: false });
  // Who unlocks the keyring comes back to what is asked now.
  const next = document.querySelector("#unlock input[name=next]");
  if (next) next.value = next.value.split("?")[0] + query;
}

function onLoad(root) {
  loadPictures(root);
  showHandles(root);
  for (const button of root.querySelectorAll("[data-copy]")) button.hidden = !navigator.clipboard;
}

/** Listen once for all pages: what is not there is not found. */
export function tendRecords() {
  document.addEventListener("keydown", onKey);
  document.addEventListener("click", onClick);
  document.addEventListener("pointerdown", onDown);
  document.addEventListener("pointermove", onMove);
  document.addEventListener("pointerup", onUp);
  document.addEventListener("panel:filled", onPanel);
  document.addEventListener("record:changed", ({ detail }) => {
    showChange(detail);
    reloadPanel(detail.dataset.record);
  });
  addEventListener("pagehide", () => leaving.abort());
  document.addEventListener("htmx:beforeSwap", beforeSwap);
  document.addEventListener("htmx:afterSettle", ({ target }) => {
    if (target.id === "panel" || target.id === "record") onPanel();
    else afterSettle();
  });
  document.addEventListener("htmx:beforeRequest", (event) => {
    const { target, elt } = event.detail;
    if (target?.id === "panel" && !elt.matches("form") && !mayLeave()) event.preventDefault();
    if (target?.id === "search" && !mayLeave(".cell-form[data-typed]")) event.preventDefault();
  });
  addEventListener("popstate", ({ state }) => state?.htmx || followAddress());
  document.addEventListener("DOMContentLoaded", followAddress);
  document.addEventListener("htmx:replacedInHistory", followQuestion);
  document.addEventListener("htmx:pushedIntoHistory", followQuestion);
  htmx.onLoad(onLoad);
}
