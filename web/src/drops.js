// A file that is dropped anywhere begins an import: into the form of the page that takes files, or else
// into the import page of the schema that is shown, or of a new one, which comes in place of this page.
// Without this file, and by keys, a file is chosen on those pages.

import htmx from "htmx.org";
import { at } from "./paths.js";
import { toast } from "./toast.js";

/** Forms that take files. Outside of them, the first one of the page does. */
const TAKES = "[data-next], [data-uploads], [data-sample]";

/** Whether a picture or a link of this page is dragged, which browsers offer as a file. */
let isOwn = false;

const hasFiles = ({ dataTransfer }) => !isOwn && (dataTransfer?.types.includes("Files") ?? false);

/** What takes files by itself: a file input, and the page of keyrings, whose files are backups. */
const isTaken = (target) => Boolean(target.closest?.("input[type=file], form[data-file]"));

/** The files that are dropped; a folder comes as a file that cannot be read. */
const filesOf = ({ dataTransfer }) =>
  [...dataTransfer.items]
    .filter((item) => item.kind === "file" && !item.webkitGetAsEntry()?.isDirectory)
    .map((item) => item.getAsFile());

const formFor = (target) => target.closest?.(TAKES) ?? document.querySelector(`main :is(${TAKES})`);

/** The page to go to: what is dropped on a page of a schema is for that schema. */
function importPage() {
  const tab = document.querySelector('nav[aria-label="Schema"] a[href$="/upload/"]');
  const name = document.querySelector("h1 bdi")?.textContent;
  return tab ? { path: tab.pathname, said: `into ${name}` } : { path: `${at}/import/`, said: "as a new schema" };
}

function mark(target) {
  const form = formFor(target);
  const place = form?.closest(".drop") ?? form?.querySelector(".drop") ?? document.querySelector("main");
  if (place.classList.contains("over")) return;
  unmark();
  place.classList.add("over");
  if (!form) toast(`Drop the file to import it ${importPage().said}.`);
}

function unmark() {
  for (const place of document.querySelectorAll(".over")) place.classList.remove("over");
}

/** As if somebody had chosen the files. */
function choose(form, files) {
  const input = form.querySelector("input[type=file]");
  const chosen = input.multiple ? files : files.slice(0, 1);
  const transfer = new DataTransfer();
  for (const file of chosen) transfer.items.add(file);
  input.files = transfer.files;
  // Who listens takes the files out of it; a script that comes later finds them there.
  input.dispatchEvent(new Event("change", { bubbles: true }));
  (form.querySelector("[data-once]") ?? input).focus();
  if (chosen.length < files.length) toast(`One file at a time is taken here: ${chosen[0].name}.`);
}

/** The import page in place of this one: a page that is gone to would not have the files. */
async function leaveFor(path, files) {
  if (document.querySelector("form[data-guard][data-typed]")) {
    if (!confirm("Leave what you typed, and import the file?")) return;
    for (const form of document.querySelectorAll("form[data-typed]")) form.removeAttribute("data-typed");
  }
  const link = document.createElement("a");
  link.setAttribute("hx-push-url", path);
  link.setAttribute("hx-select-oob", "#menu,#status");
  link.hidden = true;
  document.body.append(link);
  const swap = "outerHTML show:window:top";
  await htmx.ajax("GET", path, { source: link, target: "main", select: "main", swap }).finally(() => link.remove());
  const form = document.querySelector(`main :is(${TAKES})`);
  if (form) choose(form, files);
}

export function takeDrops() {
  if (!document.body.classList.contains("framed")) return;
  document.addEventListener("dragstart", () => (isOwn = true));
  document.addEventListener("dragend", () => (isOwn = false));
  document.addEventListener("dragover", (event) => {
    if (!hasFiles(event) || isTaken(event.target)) return unmark();
    event.preventDefault();
    event.dataTransfer.dropEffect = "copy";
    mark(event.target);
  });
  document.addEventListener("dragleave", ({ relatedTarget }) => {
    if (!relatedTarget) unmark();
  });
  document.addEventListener("drop", (event) => {
    unmark();
    if (!hasFiles(event) || isTaken(event.target)) return;
    event.preventDefault();
    document.querySelector(".toast")?.remove();
    const files = filesOf(event);
    if (!files.length) return toast("No file was dropped. A folder is not taken: drop its files.");
    const form = formFor(event.target);
    if (form) choose(form, files);
    else leaveFor(importPage().path, files);
  });
}
