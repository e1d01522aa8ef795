// The band's word on proxy and API, looked at again from time to time while the page is seen. It
// asks for nothing of the session's, so that an open page does not keep one alive.

import { at } from "./paths.js";

const AGAIN_MS = 20_000;
/** From here on an answer is slow, and later than that there is none. */
const SLOW_MS = 2000;
const GIVEN_UP_MS = 15_000;

function show(part, kind, text, title = "") {
  const element = document.querySelector(`.status [data-part=${part}]`);
  if (!element) return;
  element.title = title;
  element.querySelector(".dot").className = `dot ${kind}`;
  element.querySelector(".status-text").textContent = text;
}

let looking = false;

async function look() {
  if (document.hidden || looking) return;
  looking = true;
  const started = performance.now();
  const slow = setTimeout(() => show("api", "warn", "API is slow"), SLOW_MS);
  try {
    const answer = await fetch(`${at}/state/`, {
      credentials: "omit",
      cache: "no-store",
      signal: AbortSignal.timeout(GIVEN_UP_MS),
    });
    const took = Math.round(performance.now() - started);
    show("proxy", "good", "Proxy");
    if (answer.ok) show("api", "good", "API", `answers in ${took} ms`);
    else show("api", "bad", "API does not answer");
  } catch (error) {
    if (error.name === "TimeoutError") show("api", "bad", "API does not answer");
    else {
      show("proxy", "bad", "Proxy does not answer");
      show("api", "idle", "API state unknown");
    }
  } finally {
    clearTimeout(slow);
    looking = false;
  }
}

export function watchStatus() {
  if (!document.querySelector(".status")) return;
  setInterval(look, AGAIN_MS);
  document.addEventListener("visibilitychange", look);
  document.addEventListener("htmx:sendError", look);
  document.addEventListener("busy:slow", look);
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.xhr.status >= 500) look();
  });
}
