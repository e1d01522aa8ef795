// A job's progress over its WebSocket until it ends, and what a person is told of it.

import { at } from "./paths.js";
import { counted, digits, left, Speed } from "./words.js";

const LIVE = new Set(["uploading", "processing"]);
const AGAIN_MS = 2000;

export const isLive = (status) => LIVE.has(status);

/** Whether all rows are stored, and nothing is visible yet. */
export const isStored = ({ status, processed, total }) =>
  status === "processing" && total > 0 && processed >= total;

/** The word of a job's state. The interface has four; a job that is processed is checked first. */
export function wordOf({ status, current_batch: batch, error }) {
  if (status === "processing") return batch ? "storing" : "checking";
  return status === "failed" && error?.endsWith("(job_cancelled)") ? "cancelled" : status;
}

/** What follows the word; the speed is that of the phase. */
export function lineOf(payload, speed) {
  const { total, processed } = payload;
  const word = wordOf(payload);
  if (word === "checking") return total ? `, ${counted(total, "record")} so far` : "";
  if (!total || word === "uploading" || word === "cancelled") return "";
  const line = `, ${digits(processed)} of ${counted(total, "record")}`;
  const rate = word === "storing" ? speed.of(processed) : 0;
  if (!rate || processed >= total) return line;
  return `${line}, ${digits(rate)}/s, ${left((total - processed) / rate)}`;
}

/** Say it in an element, the word in its colour. */
export function sayState(element, payload, speed) {
  const word = document.createElement("span");
  word.className = `state ${wordOf(payload)}`;
  word.textContent = wordOf(payload);
  element.replaceChildren(word, lineOf(payload, speed));
}

/** What stands under a part of a bar. */
export function sayPhase(bars, phase, text) {
  bars.querySelector(`[data-said=${phase}]`).textContent = `${phase} ${text}`;
}

/** The three parts of a bar: uploaded, checked, stored. */
export function movePhases(bars, payload) {
  const [sent, checked, stored] = bars.querySelectorAll("progress");
  const { total, processed } = payload;
  const word = wordOf(payload);
  if (word === "uploading") return;
  sent.value = 1;
  sayPhase(bars, "checked", total ? digits(total) : "");
  if (word === "checking") {
    checked.removeAttribute("value");
    return;
  }
  checked.value = 1;
  stored.value = total ? processed / total : 0;
  sayPhase(bars, "stored", `${digits(processed)} of ${digits(total)}`);
}

/** Close a socket; one that is still opening, as soon as it is open: browsers call it an error. */
function close(socket) {
  if (socket.readyState === WebSocket.CONNECTING)
    socket.addEventListener("open", () => socket.close(), { once: true });
  else socket.close();
}

/**
 * Follow a job.
 *
 * `told` gets every payload, `ended` the last one. Returns what stops it.
 */
export function watch(job, told, ended) {
  let socket;
  let stopped = false;
  let last = { status: "uploading" };
  function begin() {
    socket = new WebSocket(new URL(`${at}/api/ws/jobs/${job}/`, location));
    socket.addEventListener("message", (event) => {
      last = JSON.parse(event.data);
      if (!stopped) told(last);
    });
    socket.addEventListener("close", () => {
      if (stopped) return;
      if (isLive(last.status)) setTimeout(() => stopped || begin(), AGAIN_MS);
      else ended(last);
    });
  }
  begin();
  return () => {
    stopped = true;
    close(socket);
  };
}

export { Speed };
