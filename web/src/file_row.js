// One file on its way: its row says how far it is, and follows its job to the end.

import * as tus from "tus-js-client";
import { addressesOf } from "./addresses.js";
import { digestOfEnds, underHeader } from "./heads.js";
import { at } from "./paths.js";
import { hasOldToken, takeToken, token } from "./session.js";
import { withTimes } from "./times.js";
import { movePhases, sayPhase, sayState, watch } from "./watching.js";
import { left, sentence, size, Speed } from "./words.js";

const TYPES = {
  csv: "text/csv",
  json: "application/json",
  ndjson: "application/x-ndjson",
  jsonl: "application/x-ndjson",
};
/** Of refusals, what may pass: too slow, another request is at it, too often. */
const PASSING = new Set([408, 409, 423, 429]);
/** Milliseconds between tries, for two minutes; the proxy is near, and back soon when it is back. */
const DELAYS = [500, 1000, 2000, 3000, ...Array(23).fill(5000)];
/** Where to go to remove what is in the way, by the error's code. */
const REMEDIES = {
  keyring_locked: ["Your keyring is locked, so nothing can be encrypted.", "/keyring/", "Unlock the keyring"],
  device_needed: ["This browser is not registered for your keyring yet.", "/device/", "Register this browser"],
  not_authenticated: ["Your session has ended.", "/login/", "Log in"],
  key_missing: ["The key of this schema is not in your keyring.", "/keyring/", "Go to the keyring"],
};

/** By extension: what browsers make of .csv depends on the spreadsheet that is installed. */
export function typeOf(name) {
  return TYPES[name.split(".").pop().toLowerCase()];
}

/** What a problem document says; of anything else, that there was no answer. */
export function problemOf(error) {
  const response = error.originalResponse;
  if (!response) return { code: "", detail: "the proxy does not answer", hint: "" };
  try {
    const said = JSON.parse(response.getBody());
    return { code: said.code ?? "", detail: said.detail ?? said.title ?? "", hint: said.hint ?? "" };
  } catch {
    return { code: "", detail: `the proxy answered ${response.getStatus()}`, hint: "" };
  }
}

/** Whether it will not be accepted the second time either. */
function isFinal(error) {
  const status = error.originalResponse?.getStatus() ?? 0;
  // 409 of a creation is an answer; of a later request it says where to go on.
  if (status === 409) return error.originalRequest.getMethod() === "POST";
  return status === 507 || (status >= 400 && status < 500 && !PASSING.has(status));
}

export class FileRow {
  #upload;
  #job = "";
  #stop = () => {};
  #speed = new Speed();

  /**
   * `element` is a copy of the page's template for a row; `changed` is called when the row begins
   * or ends something; `any`: whether files of all names are taken, and found out about.
   */
  constructor(element, file, changed, any = false) {
    this.element = element;
    this.any = any;
    this.file = file;
    this.state = "ready";
    this.changed = changed;
    this.#part("name").textContent = file.name;
    this.#part("size").textContent = size(file.size);
    for (const [name, act] of Object.entries({
      pause: () => this.#pause(),
      resume: () => this.#resume(),
      again: () => this.start({ ...this.order, again: true }),
      retry: () => this.start(this.order),
      cancel: () => this.#cancel(),
    })) {
      const button = this.#part(name);
      button.setAttribute("aria-label", `${button.textContent.trim()} ${file.name}`);
      button.addEventListener("click", act);
    }
    if (any || typeOf(file.name)) this.#show("ready");
    else this.#refuse("not one of .csv, .json, .ndjson and .jsonl");
  }

  get moving() {
    return this.state === "sending" || this.state === "paused";
  }

  /**
   * `order`: the schema's path, and whether to skip bad rows; `again`: store twice;
   * `header`: the one to send, where it is not the file's, and `like`: the file that it is for;
   * `reading`: how the file is read.
   */
  async start(order) {
    this.order = order;
    this.#speed = new Speed();
    this.#show("sending");
    this.#say("sending");
    const { header, like, reading } = order;
    const file = header ? await underHeader(this.file, header, like) : this.file;
    const metadata = {
      filename: file.name,
      filetype: reading ? TYPES.csv : typeOf(file.name),
      schema: order.schema,
      changed: String(file.lastModified),
      ends: await digestOfEnds(file),
      on_repeat: order.again ? "allow" : "refuse",
    };
    if (reading) metadata.reading = reading;
    let sent = "";
    const upload = new tus.Upload(file, {
      endpoint: `${at}/api/files/`,
      metadata,
      headers: { "X-On-Invalid": order.skip ? "skip" : "fail" },
      onBeforeRequest: (request) => {
        sent = token();
        request.setHeader("X-CSRFToken", sent);
      },
      retryDelays: DELAYS,
      removeFingerprintOnSuccess: true,
      urlStorage: addressesOf(order.schema),
      onProgress: (sent, total) => this.#sent(sent, total),
      onAfterResponse: (_request, response) => this.#heard(response),
      onShouldRetry: (error) => {
        if (isFinal(error)) return false;
        this.#say("waiting", ": the proxy does not answer. Trying again…");
        return true;
      },
      onError: async (error) => {
        // Somebody logged in again in another tab; the file was not looked at yet.
        const { originalResponse: answer } = error;
        const isOld = hasOldToken(answer?.getStatus(), problemOf(error).code);
        if (isOld && (await takeToken(sent))) upload.start();
        else this.#failed(error);
      },
      onSuccess: () => this.#arrived(),
    });
    this.#upload = upload;
    const [before] = order.again ? [] : await upload.findPreviousUploads();
    if (before) upload.resumeFromPreviousUpload(before);
    upload.start();
  }

  #part(name) {
    return this.element.querySelector(`[data-part=${name}]`);
  }

  /** Which buttons there are follows from the state. */
  #show(state) {
    const had = document.activeElement;
    this.state = state;
    const offered = {
      ready: ["cancel"],
      sending: ["pause", "cancel"],
      paused: ["resume", "cancel"],
      repeated: ["again", "cancel"],
      refused: ["retry", "cancel"],
      wrong: ["cancel"],
      stored: ["cancel"],
      ended: ["cancel"],
    }[state];
    for (const name of ["pause", "resume", "again", "retry", "cancel"])
      this.#part(name).hidden = !offered.includes(name);
    this.#part("cancel").textContent =
      this.moving || state === "stored" ? "Cancel" : "Remove";
    this.#part("cancel").setAttribute(
      "aria-label",
      `${this.#part("cancel").textContent} ${this.file.name}`,
    );
    this.#part("phases").hidden = !(this.moving || state === "stored");
    // The button that was pressed may be gone; the one that stands for it takes the focus.
    if (this.element.contains(had) && had.hidden) this.#part(offered[0]).focus();
    this.changed(this);
  }

  #say(word, rest = "") {
    const span = document.createElement("span");
    span.className = `state ${word}`;
    span.textContent = word === "sending" ? "uploading" : word;
    this.#part("line").replaceChildren(span, rest);
  }

  #sent(sent, total) {
    if (this.state !== "sending") return;
    const rate = this.#speed.of(sent);
    const time = rate ? `, ${size(rate)}/s, ${left((total - sent) / rate)}` : "";
    this.#say("sending", `, ${size(sent)} of ${size(total)}${time}`);
    const [bar] = this.element.querySelectorAll("progress");
    bar.value = total ? sent / total : 1;
    sayPhase(this.#part("phases"), "uploaded", size(sent));
  }

  #heard(response) {
    const job = response.getHeader("X-Job-Id");
    if (!job) return;
    this.#job = job;
    const link = this.#part("link");
    link.href = `${at}/jobs/${job}/`;
    link.hidden = false;
    link.setAttribute("aria-label", `Job of ${this.file.name}`);
  }

  /** All bytes are there; what is stored, the job says. */
  #arrived() {
    const id = this.#upload.url.replace(/\/$/, "").split("/").pop();
    this.#show("stored");
    const job = this.#job;
    if (!job) {
      // It went on after a reload, and the job was named to the page before.
      this.#say("sent", `. Its job is below. (${id.slice(0, 4)}…)`);
      this.#show("ended");
      return;
    }
    const speed = new Speed();
    const line = this.#part("line");
    const bars = this.#part("phases");
    this.#stop = watch(
      job,
      (payload) => {
        sayState(line, payload, speed);
        movePhases(bars, payload);
      },
      (payload) => {
        sayState(line, payload, speed);
        if (payload.status === "failed" && payload.error)
          this.#explain(payload.error.split("; ")[0].replace(/ \([a-z_]+\)$/, ""));
        this.#show("ended");
      },
    );
  }

  #explain(text, remedy) {
    const said = this.#part("problem");
    said.replaceChildren(sentence(withTimes(text)));
    if (remedy) {
      const link = document.createElement("a");
      [link.href, link.textContent] = remedy;
      // Here the file that was chosen would be forgotten.
      link.target = "_blank";
      said.append(" ", link, ".");
    }
    said.hidden = false;
  }

  #refuse(text, remedy) {
    this.#say("failed");
    this.#explain(text, remedy);
    this.#show(this.any || typeOf(this.file.name) ? "refused" : "wrong");
  }

  #failed(error) {
    const { code, detail, hint } = problemOf(error);
    if (code === "uploaded_before") {
      this.#say("repeated");
      this.#explain(`${detail}. Its records would be stored a second time`);
      this.#show("repeated");
      return;
    }
    const remedy = REMEDIES[code];
    if (remedy) this.#refuse(remedy[0], [at + remedy[1], remedy[2]]);
    else this.#refuse(hint ? `${detail}; ${hint}` : detail);
  }

  #pause() {
    this.#upload.abort();
    this.#say("paused", this.#part("line").lastChild?.textContent.replace(/, [^,]*\/s.*/, "") ?? "");
    this.#show("paused");
  }

  #resume() {
    this.#show("sending");
    this.#say("sending");
    this.#speed = new Speed();
    this.#upload.start();
  }

  async #cancel() {
    if (this.moving) await this.#upload.abort(true).catch(() => {});
    else if (this.state === "stored" && !(await this.#cancelJob())) return;
    this.#stop();
    this.state = "gone";
    this.element.remove();
    this.changed(this);
  }

  /** Whether it will store nothing more; where it may, the row stays and says why. */
  async #cancelJob() {
    const sent = token();
    const request = { method: "DELETE", headers: { "X-CSRFToken": sent } };
    const answer = await fetch(`${at}/api/jobs/${this.#job}/`, request).catch(() => undefined);
    if (answer?.ok || answer?.status === 404) return true;
    const problem = (await answer?.json().catch(() => undefined)) ?? {};
    // Somebody logged in again in another tab.
    const isOld = hasOldToken(answer?.status, problem.code);
    if (isOld && (await takeToken(sent))) return this.#cancelJob();
    const remedy = REMEDIES[problem.code];
    const reason = remedy?.[0] ?? problem.detail ?? "The proxy does not answer.";
    this.#explain(
      `The job was not cancelled. ${reason}`,
      remedy && [at + remedy[1], remedy[2]],
    );
    return false;
  }
}
