// [data-job]: a job's progress, followed over its WebSocket until it ends.

import { isLive, isStored, movePhases, sayState, Speed, watch } from "./watching.js";

function follow(element) {
  const speed = new Speed();
  const line = element.querySelector("[data-job-line]");
  const bars = element.querySelector("[data-phases]");
  const refresh = () =>
    element.isConnected && element.dispatchEvent(new Event("refresh", { bubbles: true }));
  let told = false;
  const stop = watch(
    element.dataset.job,
    (payload) => {
      // An interrupted upload went on.
      if (element.dataset.status === "uploading" && payload.status !== "uploading")
        element.querySelector("[data-waits]")?.remove();
      // How far a large job is packed is not in what comes: the page has it.
      if (told && isStored(payload)) refresh();
      else {
        if (line && !isStored(payload)) sayState(line, payload, speed);
        if (bars) movePhases(bars, payload);
      }
      told = true;
    },
    refresh,
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
