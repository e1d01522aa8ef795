// [data-sample]: a file chosen in it, or dropped, fills the form's textarea with the file's
// first rows and sends the form. The rest of the file is not read.

import { firstRows } from "./heads.js";

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
    // Somebody was quicker than this script.
    if (chosen.files.length) take(form, chosen.files[0]);
    // The choices beside it count for the file that is there already, too.
    for (const box of form.querySelectorAll("input[type=checkbox]")) {
      box.addEventListener("change", () => {
        if (form.querySelector("textarea").value) form.requestSubmit();
      });
    }
  }
}
