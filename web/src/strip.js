// Requests to the server for this page, counted on with each part that comes later: the answers
// of this proxy say what they have cost. Those of each answer run along the lane in the band.

const HEADER = "X-Server-Asked";

const plural = (count, one) => `${count.toLocaleString("en")} ${one}${count === 1 ? "" : "s"}`;

function sizeOf(bytes) {
  if (bytes < 1000) return plural(bytes, "byte");
  return bytes < 1e6 ? `${(bytes / 1000).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

const still = matchMedia("(prefers-reduced-motion: reduce)");

/** A dot goes from the proxy to the server and back; what it stands for is its title. */
function runAlong(said) {
  const lane = document.getElementById("lane");
  const [requests, bytes] = said.split(" ").map(Number);
  if (!lane || !requests) return;
  lane.title = `The last answer took ${plural(requests, "request")} to the server and back, ${sizeOf(bytes)} in all.`;
  const [out, back] = ["0", "3.5rem"].map((left) => ({ left, opacity: 1 }));
  if (!still.matches) lane.querySelector("i").animate([out, back, out], { duration: 700, easing: "ease-in-out" });
}

/** Add what an answer has cost; `said` is its header. */
export function countAsked(said) {
  const strip = document.getElementById("strip");
  if (said) runAlong(said);
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
  const strip = document.getElementById("strip");
  if (strip) runAlong(strip.dataset.asked);
  document.addEventListener("htmx:afterOnLoad", ({ detail }) => {
    const said = detail.xhr.getResponseHeader(HEADER);
    // An answer with the strip has counted itself.
    if (!/id="strip"/.test(detail.xhr.responseText)) countAsked(said);
    else if (said) runAlong(said);
  });
  for (const [name, slow] of [["busy:slow", true], ["busy:over", false]])
    document.addEventListener(name, () => document.getElementById("lane")?.classList.toggle("slow", slow));
}
