// The secret of a link to a question stands behind "#" in its address. The link's page takes it into
// its form, and sends that; logging in first leads back to the same address.

const SECRET = /^#k=[A-Za-z0-9_-]{43}$/;

export function openLinks() {
  if (!SECRET.test(location.hash)) return;
  // Requests of htmx name the address of their page, and have all of it.
  document.addEventListener("htmx:configRequest", ({ detail }) => {
    detail.headers["HX-Current-URL"] = location.href.split("#")[0];
  });
  // A redirect by a script loses what stands behind "#".
  document.addEventListener("htmx:beforeOnLoad", (event) => {
    const target = event.detail.xhr.getResponseHeader("HX-Redirect");
    if (!target || event.defaultPrevented || !SECRET.test(location.hash)) return;
    event.preventDefault();
    location.assign(target + location.hash);
  });
  const form = document.querySelector("form[data-link]");
  if (!form) return;
  form.elements.secret.value = location.hash;
  history.replaceState(history.state, "", location.pathname);
  form.requestSubmit();
}
