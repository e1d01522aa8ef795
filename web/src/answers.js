// No answer makes a page blank. One that lacks the part it was asked for (an error page does) puts
// its problem box on top of the part that is there, with all that was typed. Where no answer comes,
// a bar says so and looks again every few seconds. Visitors who are not logged in any more log in, in
// place; a page that is older than their login goes on with it.

import { at } from "./paths.js";
import { hasOldToken, leadsAside, logInHere, takeToken, token } from "./session.js";
import { toast } from "./toast.js";

const AGAIN_SECONDS = 4;
const SAID = "said-here";
const TYPED = "form[data-guard][data-typed]";

/** The box of what went wrong in an answer, or one that says that it was no page of ours. */
function boxOf(answer) {
  const found = answer.querySelector("main .problem");
  if (found) return document.adoptNode(found);
  const box = document.createElement("div");
  box.className = "problem";
  box.setAttribute("role", "alert");
  const text = document.createElement("p");
  text.textContent = "Something went wrong: the answer was not the requested page.";
  box.append(text);
  return box;
}

/** The page for it opens beside this one, whose text would be lost. */
function unregisteredBox(target) {
  const box = document.createElement("div");
  box.className = "problem";
  box.setAttribute("role", "alert");
  const text = document.createElement("p");
  const link = Object.assign(document.createElement("a"), { href: target, target: "_blank" });
  link.textContent = "Register this browser";
  text.append(
    "This browser is not registered for your keyring, so nothing was stored. Your text is still here. ",
    link,
    " in another tab, then press the button again.",
  );
  box.append(text);
  return box;
}

const documentOf = (xhr) => new DOMParser().parseFromString(xhr.responseText, "text/html");

function closeButton() {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Close";
  button.dataset.closePanel = "";
  return button;
}

function say(target, box) {
  for (const earlier of target.querySelectorAll(`.${SAID}`)) earlier.remove();
  box.classList.add(SAID);
  // A problem alone in the panel beside the table: the record's own button is not there.
  if (target.id === "panel" && !target.firstElementChild) box.append(closeButton());
  target.prepend(box);
  box.scrollIntoView({ block: "nearest" });
}

/** What a request takes out of its answer. */
function selectorOf(detail) {
  const asked = detail.requestConfig?.elt ?? detail.elt;
  return detail.selectOverride || asked.closest("[hx-select]")?.getAttribute("hx-select");
}

function keepThePart(event) {
  const selector = selectorOf(event.detail);
  if (!selector) return;
  const answer = new DOMParser().parseFromString(event.detail.serverResponse, "text/html");
  const part = answer.querySelector(selector);
  // Of a page that says a problem and nothing else, only the problem is taken.
  if (part && !part.querySelector("[data-problem-alone]")) return;
  event.detail.shouldSwap = false;
  say(event.detail.target, boxOf(answer));
}

let bar = null;

function barOf() {
  if (bar) return bar;
  bar = document.createElement("div");
  bar.className = "away";
  bar.setAttribute("role", "alert");
  document.body.prepend(bar);
  return bar;
}

async function answers() {
  try {
    const answer = await fetch(`${at}/state/`, { credentials: "omit", cache: "no-store" });
    return answer.status !== 0;
  } catch {
    return false;
  }
}

/** Say that nobody answers, until somebody does; then ask again for what only shows something. */
function wait(asked) {
  if (bar && !bar.classList.contains("back")) return;
  barOf().classList.remove("back");
  let left = AGAIN_SECONDS;
  const tick = async () => {
    if (left > 0) {
      bar.textContent = `The proxy does not answer. Trying again in ${left} s.`;
      left -= 1;
      setTimeout(tick, 1000);
    } else if (await answers()) {
      bar.classList.add("back");
      if (isRepeatable(asked)) {
        bar.remove();
        bar = null;
        repeat(asked);
      } else
        bar.textContent =
          "The proxy answers again. Your text is still here. Your request may have been carried out already: check, then press the button again.";
    } else {
      left = AGAIN_SECONDS;
      tick();
    }
  };
  tick();
}

/** Whether asking twice does no more than asking once: GET, and forms that say so of themselves,
 * but for buttons that say otherwise. */
function isRepeatable({ requestConfig, elt }) {
  if (requestConfig.triggeringEvent?.submitter?.matches("[data-once]")) return false;
  return requestConfig.verb === "get" || elt.closest("[data-repeatable]") !== null;
}

function repeat({ requestConfig, elt }) {
  if (!elt.isConnected) return;
  const { triggeringEvent } = requestConfig;
  if (elt.matches("form") && triggeringEvent?.type === "submit")
    elt.requestSubmit(triggeringEvent.submitter);
  else elt.dispatchEvent(new Event(triggeringEvent?.type ?? "refresh", { bubbles: true }));
}

/** What may be sent once is alone on its way: a choice that is made meanwhile would take its place,
 * and nobody would hear what became of it. */
function guardWhatIsSentOnce() {
  const isOnce = ({ requestConfig }) =>
    requestConfig.triggeringEvent?.submitter?.matches("[data-once]");
  document.addEventListener("htmx:beforeSend", ({ detail }) => {
    if (isOnce(detail)) detail.elt.inert = true;
  });
  document.addEventListener("htmx:afterRequest", ({ detail }) => {
    if (!isOnce(detail)) return;
    detail.elt.inert = false;
    const { submitter } = detail.requestConfig.triggeringEvent;
    if (document.activeElement === document.body && submitter.isConnected) submitter.focus();
  });
}

/** A form that was carried out leads to another page. Until that page is there, forms are not sent:
 * a second Enter would do the same again. */
function sendNothingWhileLeaving() {
  let next = "";
  document.addEventListener("htmx:beforeOnLoad", ({ detail, defaultPrevented }) => {
    const target = detail.xhr.getResponseHeader("HX-Redirect");
    // The browser asks first whether to leave what was typed, and may stay here.
    if (target && !defaultPrevented && !document.querySelector(TYPED)) next = target;
  });
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (!next || event.detail.requestConfig.verb === "get") return;
    event.preventDefault();
    // The browser's Stop leaves the page as it is; the link leads on.
    toast("This was sent already. The next page is loading:", linkTo(next));
  });
  addEventListener("pageshow", () => (next = ""));
}

const linkTo = (target) => Object.assign(document.createElement("a"), { href: target, textContent: "Open it" });

export function keepPages() {
  guardWhatIsSentOnce();
  document.addEventListener("htmx:beforeSwap", keepThePart);
  document.addEventListener("htmx:sendError", (event) => wait(event.detail));
  document.addEventListener("htmx:afterRequest", (event) => {
    if (!bar?.classList.contains("back") || !event.detail.successful) return;
    bar.remove();
    bar = null;
  });
  document.addEventListener("htmx:beforeOnLoad", (event) => {
    const { xhr } = event.detail;
    if (hasOldToken(xhr.status, xhr.getResponseHeader("X-Error-Code"))) {
      // Without another token it is said.
      event.preventDefault();
      const { requestConfig } = event.detail;
      takeToken(requestConfig.formData.get("csrf") ?? token()).then((isNew) => {
        if (isNew) repeat(event.detail);
        else say(event.detail.target, boxOf(documentOf(xhr)));
      });
      return;
    }
    const target = xhr.getResponseHeader("HX-Redirect") ?? "";
    if (!leadsAside(target)) return;
    if (!target.startsWith(`${at}/login/`)) {
      if (!document.querySelector(TYPED)) return;
      event.preventDefault();
      say(event.detail.target, unregisteredBox(target));
      return;
    }
    // The request was refused before it did anything, so it can be sent again.
    event.preventDefault();
    logInHere(target).then((isSame) => isSame && repeat(event.detail));
  });
  // After the listener above, which takes the login out.
  sendNothingWhileLeaving();
}
