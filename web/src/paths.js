// The pages of a browser lie below a secret path, and its cookie is sent there alone. This browser
// remembers the path for this address, port included, as no other port can read it.

const KEPT = "at";
const ENTRIES = new Set(["/", "/login/"]);

/** The secret path of this page: empty, or such as "/~abcdefghijklmnop". */
export const at = document.querySelector("meta[name=at]")?.content ?? "";

/** Remember the path; or, at an address without one, go below the one that is remembered. */
export function keepPath() {
  if (at) {
    localStorage.setItem(KEPT, at);
    return;
  }
  const kept = localStorage.getItem(KEPT);
  if (kept && /^\/~[a-z2-7]{16}$/.test(kept) && ENTRIES.has(location.pathname))
    location.replace(kept + location.pathname + location.search);
}
