// [data-sample]: a file dropped on it, or chosen in it, fills the form's textarea with the file's
// first rows and sends the form. The rest of the file is not read.

const SAMPLE_BYTES = 512 << 10;

/** The first rows of a file, cut where a row ends. */
async function firstRows(file) {
  const text = await file.slice(0, SAMPLE_BYTES).text();
  if (file.size <= SAMPLE_BYTES) return text;
  if (text.trimStart().startsWith("[")) {
    const end = text.search(/\}\s*,(?![\s\S]*\}\s*,)/);
    return end < 0 ? text : `${text.slice(0, end + 1)}]`;
  }
  return text.slice(0, text.lastIndexOf("\n") + 1);
}

async function take(form, file) {
  form.querySelector("textarea").value = await firstRows(file);
  form.requestSubmit();
}

export function takeSamples(root) {
  for (const form of root.querySelectorAll("form[data-sample]")) {
    const chosen = form.querySelector("input[type=file]");
    chosen.addEventListener("change", () => {
      if (chosen.files.length) take(form, chosen.files[0]);
    });
    form.addEventListener("dragover", (event) => {
      event.preventDefault();
      form.classList.add("over");
    });
    form.addEventListener("dragleave", () => form.classList.remove("over"));
    form.addEventListener("drop", (event) => {
      event.preventDefault();
      form.classList.remove("over");
      if (event.dataTransfer.files.length) take(form, event.dataTransfer.files[0]);
    });
  }
}
