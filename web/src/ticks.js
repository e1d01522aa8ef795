// Ticks at records: how many there are, one for all of the page, and with Shift all between two. Forms do
// what is done with them; copying alone needs this file.

import htmx from "htmx.org";
import { post, token } from "./session.js";
import { toast } from "./toast.js";
import { counted } from "./words.js";

const ticks = () => [...document.querySelectorAll("table.records tbody input[form=ticked]")];
const ticked = () => ticks().filter((tick) => tick.checked);

/** The tick that was pressed last, from which Shift goes on. */
let last = null;

function say() {
  const [all, some] = [ticks(), ticked()];
  const said = document.querySelector("[data-ticked]");
  if (!said) return;
  said.textContent = `${some.length.toLocaleString("en")} ticked`;
  const whole = document.querySelector("[data-tick-all]");
  whole.checked = some.length === all.length;
  whole.indeterminate = some.length > 0 && !whole.checked;
}

function tick(chosen, isTicked) {
  for (const box of chosen) box.checked = isTicked;
  say();
}

/** Copies ticked records, or all of the page where none is ticked. */
async function copy() {
  const form = document.getElementById("ticked");
  const chosen = ticked().length ? ticked() : ticks();
  const fieldsOf = () => {
    const body = new URLSearchParams(new FormData(form));
    for (const { name, value } of chosen) body.set(name, value);
    body.set("do", "copy");
    body.set("csrf", token());
    return body;
  };
  const answer = post(form.getAttribute("action"), fieldsOf);
  const isRead = answer.then(({ ok, status }) => ok && status !== 204);
  // Promised while the button is pressed: Safari takes nothing later.
  const table = isRead.then(async (is) => {
    if (!is) throw new Error("not read");
    return new Blob([await (await answer).text()], { type: "text/plain" });
  });
  table.catch(() => {}); // said below, also where the clipboard is refused first
  const isWritten = navigator.clipboard.write([new ClipboardItem({ "text/plain": table })]).then(
    () => true,
    () => false,
  );
  if (!(await isRead)) return toast("Something went wrong: the records could not be read.");
  if (await isWritten) return toast(`${counted(chosen.length, "record")} copied, as a table.`);
  toast("The browser does not let this page write to the clipboard. Allow it, and copy again.");
}

export function useTicks() {
  document.addEventListener("click", (event) => {
    const { target, shiftKey } = event;
    if (target.matches("[data-tick-all]")) tick(ticks(), target.checked);
    else if (target.matches("[data-untick]")) tick(ticks(), false);
    else if (target.matches("[data-copy-records]")) copy().catch(() => toast("The proxy does not answer."));
    if (!target.matches("input[form=ticked]")) return;
    const all = ticks();
    const ends = [all.indexOf(last), all.indexOf(target)].sort((a, b) => a - b);
    if (shiftKey && ends[0] >= 0) tick(all.slice(ends[0], ends[1] + 1), target.checked);
    last = target;
    say();
  });
  htmx.onLoad((root) => {
    for (const own of root.querySelectorAll("[data-tick-all], [data-untick]")) own.hidden = false;
    for (const own of root.querySelectorAll("[data-copy-records]")) own.hidden = !navigator.clipboard;
    say();
  });
}
