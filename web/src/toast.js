// A word on what was done, for some seconds, with a form that undoes it where there is one.

import { post, token } from "./session.js";

const SHOWN_MS = 8000;

let ending = 0;

function placeOf() {
  const known = document.querySelector(".toast");
  if (known) return known;
  const place = document.createElement("div");
  place.className = "toast";
  place.setAttribute("role", "status");
  document.body.append(place);
  return place;
}

/**
 * @param {string} text
 * @param {HTMLFormElement | HTMLAnchorElement | null} [more] what its button sends to undo it, or a link
 */
export function toast(text, more = null) {
  const place = placeOf();
  place.textContent = text;
  clearTimeout(ending);
  if (more) place.append(" ", more.matches("a") ? more : buttonOf(more));
  ending = setTimeout(leave, SHOWN_MS);
}

/** Whoever is about to press it has time for that. */
function leave() {
  const place = placeOf();
  if (place.matches(":hover, :focus-within")) ending = setTimeout(leave, SHOWN_MS);
  else place.remove();
}

function buttonOf(form) {
  const sent = new FormData(form);
  const path = form.getAttribute("action");
  const button = document.createElement("button");
  button.textContent = "Undo";
  button.title = "z";
  button.dataset.undo = "";
  button.addEventListener("click", async () => {
    button.disabled = true;
    const fieldsOf = () => {
      const body = new URLSearchParams(sent);
      body.set("csrf", token());
      return body;
    };
    const headers = { "HX-Target": "panel" };
    const answer = await post(path, fieldsOf, { headers }).catch(() => null);
    const page = answer && new DOMParser().parseFromString(await answer.text(), "text/html");
    const record = page?.querySelector("#record:has([data-changed])");
    const said = page?.querySelector(".problem p")?.textContent;
    toast(record ? "As it was before." : (said ?? "The proxy does not answer."));
    if (record) document.dispatchEvent(new CustomEvent("record:changed", { detail: record }));
  });
  return button;
}
