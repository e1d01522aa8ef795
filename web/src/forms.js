// Every form of a page's own part is sent from the page that is there, and its answer comes into it.
// So what was typed is still there when no answer comes, when the session has ended, or when the
// answer is a problem. Without scripts, forms are sent as forms are.

import { leadsAside, renewSession } from "./session.js";

/** Forms that say themselves how they are sent, files, and those whose answer is a download. */
const OTHERS = "[hx-post], [data-uploads], [data-download], [method=get]";

function take(form) {
  if (!form.matches?.("main form[method=post]") || form.matches(OTHERS)) return;
  // A form of the record beside a table is answered there.
  const beside = form.closest("#panel") !== null;
  const attributes = {
    // Without an action a form goes to its page.
    "hx-post": form.getAttribute("action") ?? location.pathname + location.search,
    "hx-target": beside ? "#panel" : "main",
    "hx-select": beside ? "#record" : "main",
    // What surrounds the page may be another by then: a name, a keyring that is open.
    ...(beside ? {} : { "hx-select-oob": "#menu,#status" }),
    "hx-swap": beside ? "innerHTML show:none" : "outerHTML show:window:top",
    // What is sent by a double click is sent once.
    "hx-sync": "this:drop",
    "hx-push-url": "false",
  };
  for (const [name, value] of Object.entries(attributes)) form.setAttribute(name, value);
}

/** The sheets and scripts of an answer that this page has not: it may be answered with another page. */
function takeSheets({ detail }) {
  if (detail.target?.id !== "main" || !detail.shouldSwap) return;
  const answer = new DOMParser().parseFromString(detail.serverResponse, "text/html");
  const here = new Set([...document.querySelectorAll("link[rel=stylesheet], script[src]")].map(({ href, src }) => href ?? src));
  const first = document.querySelector("link[rel=stylesheet]");
  for (const sheet of answer.querySelectorAll("link[rel=stylesheet]")) {
    const { href } = new URL(sheet.getAttribute("href"), location.href);
    if (!here.has(href)) first.before(document.adoptNode(sheet));
  }
  for (const { attributes } of answer.querySelectorAll("head script[src]")) {
    const { href } = new URL(attributes.src.value, location.href);
    // One that was parsed with an answer does not run.
    if (!here.has(href)) document.head.append(Object.assign(document.createElement("script"), { src: href }));
  }
}

/** Whether an answer says that the form was carried out: it leads to another page, which is not one
 * that has to be passed before; or a button was pressed that does so. */
function isDone({ xhr, requestConfig }) {
  const next = xhr.getResponseHeader("HX-Redirect");
  if (next) return !leadsAside(next);
  return xhr.status < 400 && requestConfig.triggeringEvent?.submitter?.matches("[data-once]");
}

/** [data-guard]: what was typed into a form is not left behind without a question. A "draft" is
 * answered by itself until a button that is pressed once carries it out. */
function guardTyped() {
  const typed = () => document.querySelector("form[data-guard][data-typed]");
  document.addEventListener("input", ({ target }) => {
    const form = target.closest("form[data-guard]");
    // A file is still where it was chosen.
    if (form && target.type !== "file") form.dataset.typed = "yes";
  });
  document.addEventListener("htmx:beforeOnLoad", ({ detail, target }) => {
    if (isDone(detail)) target.removeAttribute("data-typed");
  });
  let draft = "";
  document.addEventListener("htmx:beforeSwap", () => (draft = document.querySelector("form[data-guard=draft][data-typed]")?.id));
  document.addEventListener("htmx:afterSwap", () => {
    const form = draft && document.getElementById(draft);
    if (form) form.dataset.typed = "yes";
  });
  addEventListener("beforeunload", (event) => {
    if (typed()) event.preventDefault();
  });
}

/** [data-download]: a login page would take the place of this one, with what was typed or ticked, so
 * the session is looked at first. The browser shows nothing before the file begins, so the form says
 * that it will. */
function sendDownloads() {
  const [asking, renewed] = [new WeakSet(), new WeakSet()];
  addEventListener("submit", async (event) => {
    const { target, submitter } = event;
    if (!target.matches("[data-download]")) return;
    if (!renewed.delete(target)) {
      event.preventDefault();
      if (asking.has(target)) return;
      asking.add(target);
      await renewSession().catch(() => {}); // what is wrong, the answer to the form says
      asking.delete(target);
      renewed.add(target);
      target.requestSubmit(submitter);
      return;
    }
    const said = target.querySelector("[data-download-said]");
    if (said) said.textContent = "The download is starting. A large file takes some seconds.";
  });
}

const PROGRESS_MS = 500;

/** [data-progress]: while the form is on its way, the page that it names says how far that is. */
function sayProgress() {
  document.addEventListener("htmx:beforeSend", ({ target }) => {
    const shown = target.querySelector?.("[data-progress-shown]");
    if (!shown || !target.dataset.progress) return;
    const [bar, text] = shown.children;
    const look = async () => {
      if (!target.matches(".htmx-request")) return;
      const answer = await fetch(target.dataset.progress).catch(() => null);
      const [done, total] = ((answer?.ok && (await answer.text())) || "").split(" ").map(Number);
      if (total) {
        Object.assign(bar, { value: done, max: total });
        text.textContent = `${done} of ${total}`;
        shown.hidden = false;
      }
      setTimeout(look, PROGRESS_MS);
    };
    setTimeout(look, PROGRESS_MS);
  });
}

/** [data-run]: Ctrl-Enter (Cmd-Enter) in a text of several lines sends its form. */
function sendByKey() {
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    if (!event.target.matches?.("[data-run]")) return;
    event.preventDefault();
    event.target.form.requestSubmit();
  });
}

/** Before htmx looks at the page. */
export function sendForms() {
  sendDownloads();
  guardTyped();
  sendByKey();
  sayProgress();
  for (const form of document.querySelectorAll("main form")) take(form);
  document.addEventListener("htmx:beforeProcessNode", ({ target }) => take(target));
  document.addEventListener("htmx:beforeSwap", takeSheets);
}
