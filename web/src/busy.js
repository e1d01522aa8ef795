// One sign for every request that is on its way: a line below the band, and words beside it when the
// answer takes long.

const SHOWN_AFTER_MS = 300;
const SLOW_AFTER_MS = 2000;

const underWay = new Set();
let sign = null;
let ticking = 0;

function signOf() {
  if (sign?.isConnected) return sign;
  sign = document.createElement("p");
  sign.className = "busy";
  sign.setAttribute("role", "status");
  document.body.append(sign);
  return sign;
}

function show() {
  const now = performance.now();
  const longest = Math.max(0, ...[...underWay].map((begun) => now - begun.at));
  const main = document.querySelector("main");
  const place = signOf();
  const slow = longest >= SLOW_AFTER_MS;
  place.classList.toggle("shown", longest >= SHOWN_AFTER_MS);
  place.classList.toggle("slow", slow);
  // Said once and again after some seconds, not each second: screen readers read it out.
  const text = slow ? "Still waiting for the answer…" : "";
  if (place.textContent !== text) place.textContent = text;
  if (longest >= SHOWN_AFTER_MS) main?.setAttribute("aria-busy", "true");
  else main?.removeAttribute("aria-busy");
  if (slow !== wasSlow) {
    wasSlow = slow;
    document.dispatchEvent(new CustomEvent(slow ? "busy:slow" : "busy:over"));
  }
  if (!underWay.size) {
    clearInterval(ticking);
    ticking = 0;
  }
}

let wasSlow = false;

/** Say that something is waited for. Returns what ends it. */
export function begin() {
  const begun = { at: performance.now() };
  underWay.add(begun);
  ticking ||= setInterval(show, 100);
  return () => underWay.delete(begun) && show();
}

/** The same, of a promise. */
export function whileBusy(promise) {
  return promise.finally(begin());
}

/** Another page is asked for by a link, or by a form that is sent as forms are. A download leaves
 * the page where it is. */
function onLeave(event) {
  const asks = event.target.closest?.(event.type === "click" ? "a[href]" : "form");
  if (!asks || event.defaultPrevented || asks.matches("[data-download]")) return;
  if (event.type === "click") {
    const held = event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey;
    if (held || asks.target || asks.hasAttribute("download")) return;
    if (asks.origin !== location.origin || asks.getAttribute("href").startsWith("#")) return;
  }
  leave ??= begin();
}

let leave = null;

function stay() {
  leave?.();
  leave = null;
}

export function showBusy() {
  document.addEventListener("htmx:beforeSend", ({ detail }) => {
    // Also where its element is gone by then, whose events nobody hears.
    detail.xhr.addEventListener("loadend", begin());
  });
  addEventListener("click", onLeave);
  addEventListener("submit", onLeave);
  // Back to this page from the browser's memory; or somebody stayed, and does something else.
  addEventListener("pageshow", stay);
  for (const type of ["pointerdown", "keydown"]) addEventListener(type, stay, true);
}
