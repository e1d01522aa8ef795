// Logging in where one is, when the session has ended: the login page's form in a box over the page,
// which is covered meanwhile. What was typed into the page stays.

import { whileBusy } from "./busy.js";
import { at } from "./paths.js";

async function partOf(path, selector, options) {
  const answer = await fetch(path, options);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  return page.querySelector(selector);
}

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

/**
 * Post the fields of a form by a script; once more with the present token, where the form's was of
 * an earlier session.
 * @param {string} path
 * @param {() => URLSearchParams} fieldsOf the form's fields at the time of sending
 * @param {RequestInit} [options]
 */
export async function post(path, fieldsOf, options = {}) {
  const body = fieldsOf();
  const answer = await fetch(path, { ...options, method: "POST", body });
  const isOld = hasOldToken(answer.status, answer.headers.get("X-Error-Code"));
  if (!isOld || !(await takeToken(body.get("csrf")))) return answer;
  return fetch(path, { ...options, method: "POST", body: fieldsOf() });
}

let open = false;

/**
 * Ask for the password in a box.
 * @param {string} page the login page that would be gone to otherwise
 * @param {() => void} goOn what to do when the same user is logged in again
 */
export async function logInHere(page, goOn) {
  if (open) return;
  const form = await partOf(page, "main form").catch(() => null);
  if (!form) {
    location.assign(page);
    return;
  }
  open = true;
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
    open = false;
    if (goesOn) goOn();
  });
  box.showModal();
}
