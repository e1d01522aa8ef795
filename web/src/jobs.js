// [data-job]: a job's progress, followed over its WebSocket until it ends.

import { isLive, movePhases, sayState, Speed, watch } from "./watching.js";

function follow(element) {
  const speed = new Speed();
  const line = element.querySelector("[data-job-line]");
  const bars = element.querySelector("[data-phases]");
  const stop = watch(
    element.dataset.job,
    (payload) => {
      if (line) sayState(line, payload, speed);
      if (bars) movePhases(bars, payload);
    },
    () => element.isConnected && element.dispatchEvent(new Event("refresh", { bubbles: true })),
  );
  element.addEventListener("htmx:beforeCleanupElement", stop, { once: true });
}

export function followJobs(root) {
  const found = [...root.querySelectorAll("[data-job]")];
  if (root.matches?.("[data-job]")) found.push(root);
  for (const element of found) {
    if (isLive(element.dataset.status) && !element.dataset.followed) {
      element.dataset.followed = "yes";
      follow(element);
    }
  }
}
