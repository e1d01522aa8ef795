// [data-job]: a job's progress, followed over its WebSocket until it ends.

const number = new Intl.NumberFormat("en");
const LIVE = new Set(["uploading", "processing"]);
const AGAIN_MS = 2000;

function show(element, { status, processed, total }) {
  const bar = element.querySelector("progress");
  if (bar && status === "processing" && total) {
    bar.max = total;
    bar.value = processed;
  }
  const line = element.querySelector("[data-job-line]");
  if (line) {
    const counted = total ? `, ${number.format(processed)} of ${number.format(total)} records` : "";
    line.textContent = status + counted;
  }
}

/** Close a socket; one that is still opening, as soon as it is open: browsers call it an error. */
function end(socket) {
  if (socket.readyState === WebSocket.CONNECTING)
    socket.addEventListener("open", () => socket.close(), { once: true });
  else socket.close();
}

function follow(element) {
  const socket = new WebSocket(new URL(`/api/ws/jobs/${element.dataset.job}/`, location));
  let status = element.dataset.status;
  socket.addEventListener("message", (event) => {
    const payload = JSON.parse(event.data);
    status = payload.status;
    show(element, payload);
  });
  socket.addEventListener("close", () => {
    if (!element.isConnected) return;
    if (LIVE.has(status)) setTimeout(() => element.isConnected && follow(element), AGAIN_MS);
    else element.dispatchEvent(new Event("refresh", { bubbles: true }));
  });
  element.addEventListener("htmx:beforeCleanupElement", () => end(socket), { once: true });
}

export function followJobs(root) {
  const found = [...root.querySelectorAll("[data-job]")];
  if (root.matches?.("[data-job]")) found.push(root);
  for (const element of found) {
    if (LIVE.has(element.dataset.status) && !element.dataset.followed) {
      element.dataset.followed = "yes";
      follow(element);
    }
  }
}
