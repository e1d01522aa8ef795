// Logging in where one is, when the session has ended: the login page's form in a box over the page,
// which is covered meanwhile. What was typed into the page stays.

import { whileBusy } from "./busy.js";
import { at } from "./paths.js";

async function partOf(path, selector, options) {
  const answer = await fetch(path, options);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  return page.querySelector(selector);
}

/** The page that lets in a browser that is not registered for the keyring. */
const DEVICE = `${at}/device/`;

/** Whether a redirect leads to a page that has to be passed first: the form was not carried out. */
export const leadsAside = (target) => [`${at}/login/`, DEVICE].some((page) => target.startsWith(page));

/** The CSRF token that this page has. */
export const token = () => document.querySelector("meta[name=csrf]").content;

/** Whether an answer is a refusal because the page's token is of an earlier session. */
export const hasOldToken = (status, code) => status === 403 && code === "csrf_failed";

/**
 * Every form of this page gets the token of the session that there is now: somebody may have logged
 * in again in another tab. Whether it is another one than `sent`, which was refused.
 *
 * A page of somebody else is not gone on with; it is loaded anew.
 */
export async function takeToken(sent) {
  // Otherwise another request of this page has taken it already.
  if (token() === sent) {
    const head = await partOf(`${at}/account/`, "head").catch(() => null);
    const [csrf, user] = ["csrf", "user"].map(
      (name) => head?.querySelector(`meta[name=${name}]`)?.content ?? "",
    );
    if (!csrf || csrf === sent) return false;
    if (user !== document.querySelector("meta[name=user]").content) {
      location.reload();
      return false;
    }
    document.querySelector("meta[name=csrf]").content = csrf;
  }
  for (const field of document.querySelectorAll("input[name=csrf]")) field.value = token();
  return true;
}

/** Whether a refused request can be sent again: the page has the token of a new session now. */
async function isRenewed(answer, body, logsIn) {
  const page = answer.headers.get("HX-Redirect") ?? "";
  if (page.startsWith(`${at}/login/`)) return logsIn && logInHere(page);
  if (!hasOldToken(answer.status, answer.headers.get("X-Error-Code"))) return false;
  return takeToken(body?.get("csrf") ?? token());
}

/**
 * Request a page by a script. If the session has ended, the user logs in in place, and the request
 * is sent again; also if the token was of an earlier session.
 * @param {string} path
 * @param {RequestInit & { logsIn?: boolean }} [options] `logsIn`: whether to ask for a login
 * @param {() => URLSearchParams} [fieldsOf] the fields to post, at the time of sending
 */
export async function ask(path, { logsIn = true, ...options } = {}, fieldsOf = undefined) {
  const send = (body) => {
    // Without this header the login page itself would be the answer.
    const headers = { "HX-Request": "true", ...options.headers };
    return whileBusy(fetch(path, { ...options, headers, ...(body && { method: "POST", body }) }));
  };
  const body = fieldsOf?.();
  const answer = await send(body);
  return (await isRenewed(answer, body, logsIn)) ? send(fieldsOf?.()) : answer;
}

/**
 * Before a form is sent as forms are: if the session has ended, the user logs in in place, and forms
 * get the token of the session that there is.
 */
export async function renewSession() {
  const answer = await ask(`${at}/account/`);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const csrf = page.querySelector("meta[name=csrf]")?.content;
  if (csrf && csrf !== token()) await takeToken(token());
}

/** Post the fields of a form by a script. */
export const post = (path, fieldsOf, options = {}) => ask(path, options, fieldsOf);

/** The login under way: all requests that were refused wait for the same one. */
let login = null;

/**
 * Ask for the password in a box. The answer is whether the same user is logged in again.
 * @param {string} page the login page that would be gone to otherwise
 * @returns {Promise<boolean>}
 */
export function logInHere(page) {
  login ??= showLogin(page).finally(() => (login = null));
  return login;
}

async function showLogin(page) {
  const form = await partOf(page, "main form").catch(() => null);
  if (!form) {
    location.assign(page);
    return false;
  }
  const box = document.createElement("dialog");
  box.className = "session";
  box.setAttribute("aria-labelledby", "session-ended");
  const heading = document.createElement("h2");
  heading.id = "session-ended";
  heading.textContent = "Your session has ended";
  const text = document.createElement("p");
  text.textContent = "Log in again to continue here. Your text is still here.";
  // The page behind has fields of these names.
  for (const one of form.querySelectorAll("[id]")) one.id = `again-${one.id}`;
  for (const one of form.querySelectorAll("[for]")) one.htmlFor = `again-${one.htmlFor}`;
  box.append(heading, text, document.adoptNode(form));
  document.body.append(box);
  box.addEventListener("cancel", (event) => {
    event.preventDefault();
    location.assign(page);
  });
  let resolve;
  const promise = new Promise((done) => (resolve = done));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const answer = await whileBusy(
      fetch(`${at}/login/`, {
        method: "POST",
        body: new URLSearchParams(new FormData(form)),
        headers: { "HX-Request": "true" },
      }),
    ).catch(() => null);
    const target = answer?.headers.get("HX-Redirect");
    if (!target) {
      const said = answer ? await answer.text() : "";
      const found = new DOMParser().parseFromString(said, "text/html").querySelector(".problem");
      box.querySelector(".problem")?.remove();
      if (found) form.before(document.adoptNode(found));
      else text.textContent = "The proxy does not answer. Try again in a moment.";
      return;
    }
    if (!target.startsWith(`${at}/`)) {
      location.assign(target); // it is somebody else now, whose pages lie elsewhere
      return;
    }
    const goesOn = await takeToken(token());
    box.close();
    box.remove();
    resolve(goesOn);
  });
  box.showModal();
  return promise;
}
