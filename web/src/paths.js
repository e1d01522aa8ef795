// The pages of a browser lie below a secret path, and its cookie is sent there alone. This browser
// remembers the path for this address, port included, as no other port can read it.
//
// So a link leads a browser that is logged in below its own path, whether it has the path of
// somebody else's browser in it or none.

const KEPT = "at";
const LOG_IN = "/login/";

/** The secret path of this page: empty, or such as "/~abcdefghijklmnop". */
export const at = document.querySelector("meta[name=at]")?.content ?? "";

/** What this page was asked for, below its secret path: the login page stands in for another one. */
function wanted() {
  const path = location.pathname.slice(at.length);
  if (path !== LOG_IN) return path + location.search;
  const next = new URLSearchParams(location.search).get("next") ?? "/";
  return next.startsWith("/") ? next : "/";
}

/** Whether the address has become that of another page before this script ran, as where somebody goes
 * back twice at once in Firefox: nobody has heard the second time. */
function isOutrun() {
  const [loaded] = performance.getEntriesByType("navigation");
  const [was, is] = [new URL(loaded?.name ?? location), location];
  return was.pathname + was.search !== is.pathname + is.search;
}

/** Remember the path of somebody who is logged in; elsewhere, go below the one that is remembered. */
export function keepPath() {
  if (isOutrun()) location.reload();
  const kept = localStorage.getItem(KEPT);
  const known = document.body.classList.contains("framed");
  const isElsewhere = kept !== at && /^\/~[a-z2-7]{16}$/.test(kept ?? "");
  if (at && (known || !isElsewhere)) localStorage.setItem(KEPT, at);
  else if (isElsewhere && (at || ["/", LOG_IN].includes(location.pathname)))
    location.replace(kept + wanted() + location.hash);
}
