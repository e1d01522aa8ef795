// [data-uploads]: files go to /api/files/ by TUS, which makes a job of each.
//
// Nothing of a file stays in the browser: between visits it remembers where an unfinished upload
// is, and choosing the same file again goes on there. A file's first rows are shown before it is
// sent: the form that data-preview names asks for that.

import { FileRow, typeOf } from "./file_row.js";
import { firstBytes, firstRows } from "./heads.js";
import { counted } from "./words.js";

/** How often it is looked whether an answer has come. */
const LOOK_MS = 50;

class Uploads {
  #rows = new Set();
  #reading = Promise.resolve();

  constructor(place) {
    this.place = place;
    this.chooser = place.querySelector("input[type=file]");
    this.list = place.querySelector("[data-files]");
    this.template = place.querySelector("template");
    this.send = place.querySelector("[data-send]");
    this.jobs = document.querySelector("#jobs");
    this.single = place.hasAttribute("data-single");
    this.#prepare();
    this.#listen();
    this.#refresh();
    // Somebody was quicker than this script.
    if (this.chooser.files.length) this.#add([...this.chooser.files]);
  }

  /** What the form does without scripts is done here from now on. */
  #prepare() {
    const { place, chooser } = this;
    place.classList.add("scripted");
    place.removeAttribute("enctype");
    chooser.multiple = !this.single;
    chooser.required = false;
    chooser.removeAttribute("name");
  }

  #listen() {
    const { place, chooser, send } = this;
    chooser.addEventListener("change", () => this.#add([...chooser.files]));
    send?.addEventListener("click", (event) => {
      event.preventDefault();
      this.#sendChosen();
    });
    // From a choice of columns until its answer, the header that was answered before is not meant.
    document.addEventListener("change", ({ target }) => {
      const columns = target.closest("#preview #columns");
      if (columns) columns.dataset.changed = "yes";
    });
    if (send) place.addEventListener("submit", (event) => event.preventDefault());
    window.addEventListener("beforeunload", (event) => {
      if ([...this.#rows].some(({ moving }) => moving)) event.preventDefault();
    });
    // The answer that a schema is made for the file that was chosen.
    place.addEventListener("htmx:afterSettle", () => {
      const made = place.querySelector("[data-go]");
      if (made && !made.dataset.gone) {
        made.dataset.gone = "yes";
        this.start(made.dataset.schema, made.dataset);
      }
    });
  }

  #add(files) {
    const chosen = this.single ? files.slice(0, 1) : files;
    if (this.single) {
      for (const row of [...this.#rows]) if (!row.moving) this.#drop(row);
    }
    for (const file of chosen) {
      const element = this.template.content.firstElementChild.cloneNode(true);
      this.list.append(element);
      this.#rows.add(new FileRow(element, file, (row) => this.#refresh(row), this.single));
    }
    this.chooser.value = "";
    this.#refresh();
    const readable = chosen.find(({ name }) => this.single || typeOf(name));
    if (readable) this.#reading = this.#preview(readable);
  }

  /** Send what is ready, under the columns that were chosen last: their answer is waited for. */
  async #sendChosen() {
    await this.#reading;
    const form = `#${this.place.dataset.preview}`;
    const asking = `${form}.htmx-request, [form="${form.slice(1)}"].htmx-request`;
    while (document.querySelector(asking)) await new Promise((go) => setTimeout(go, LOOK_MS));
    // It did not come, which is said where it would have been.
    const unanswered = document.querySelector("#preview #columns[data-changed] select");
    if (unanswered) unanswered.focus();
    else this.start(this.place.dataset.schema);
  }

  #drop(row) {
    row.element.remove();
    this.#rows.delete(row);
  }

  async #preview(file) {
    this.previewed = file;
    // What was chosen for another file's columns is not wanted.
    document.querySelector("#preview")?.replaceChildren();
    const form = document.getElementById(this.place.dataset.preview);
    const { sample, head, file: name, size } = form.elements;
    if (head) head.value = await firstBytes(file);
    else sample.value = await firstRows(file);
    name.value = file.name;
    size.value = file.size;
    // What was typed of another file's fields is not wanted.
    form.querySelector("#plan")?.replaceChildren();
    form.requestSubmit();
  }

  /** Called by rows when they begin or end something. */
  #refresh(row) {
    if (row?.state === "gone") {
      this.#rows.delete(row);
      this.chooser.focus();
      document.querySelector("#preview")?.replaceChildren();
    }
    if (row && ["ended", "gone"].includes(row.state))
      this.jobs?.dispatchEvent(new Event("refresh"));
    const ready = [...this.#rows].filter(({ state }) => state === "ready");
    if (this.send) {
      this.send.hidden = !ready.length;
      this.send.textContent = `Upload ${counted(ready.length, "file")}`;
    }
    this.list.hidden = !this.#rows.size;
  }

  /**
   * Send all files that are ready to a schema. `made`: what the answer says that has made it;
   * otherwise the page's own box for bad rows and choice of columns count.
   */
  start(schema, made) {
    const order = {
      schema,
      skip: made ? "skip" in made : Boolean(this.place.querySelector("#skip")?.checked),
      header: document.querySelector("#preview #columns")?.dataset.header,
      reading: made?.reading,
      like: this.previewed,
    };
    for (const row of [...this.#rows]) if (row.state === "ready") row.start(order);
  }
}

function prepare(root) {
  for (const place of root.querySelectorAll("[data-uploads]:not(.scripted)")) new Uploads(place);
}

prepare(document);
// A page that came in place of another one.
document.addEventListener("htmx:load", ({ target }) => prepare(target));
