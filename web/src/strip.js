// Requests to the server for this page, counted on with each part that comes later: the answers
// of this proxy say what they have cost.

const HEADER = "X-Server-Asked";

const plural = (count, one) => `${count.toLocaleString("en")} ${one}${count === 1 ? "" : "s"}`;

function sizeOf(bytes) {
  if (bytes < 1000) return plural(bytes, "byte");
  return bytes < 1e6 ? `${(bytes / 1000).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

/** Add what an answer has cost; `said` is its header. */
export function countAsked(said) {
  const strip = document.getElementById("strip");
  if (!said || !strip) return;
  const before = strip.dataset.asked.split(" ").map(Number);
  const all = said.split(" ").map((text, at) => Number(text) + before[at]);
  strip.dataset.asked = all.join(" ");
  const [requests, bytes, pages, rows] = all;
  const texts = [plural(requests, "request"), sizeOf(bytes), plural(pages, "index page"), plural(rows, "row")];
  strip.querySelectorAll("b").forEach((place, at) => (place.textContent = texts[at]));
}

/** The same of an answer of fetch(). */
export function countAnswer(answer) {
  countAsked(answer.headers.get(HEADER));
  return answer;
}

export function countRequests() {
  document.addEventListener("htmx:afterOnLoad", ({ detail }) => {
    // An answer with the strip has counted itself.
    if (!/id="strip"/.test(detail.xhr.responseText)) countAsked(detail.xhr.getResponseHeader(HEADER));
  });
}
