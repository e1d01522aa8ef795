// [data-file]: the file that is chosen in the form goes into its field "content" in Base64 when the
// form is sent, since forms here are text. Only small files are chosen that way: backups of keys.

const MOST_BYTES = 1 << 20;

function base64(bytes) {
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}

export function takeFiles(root) {
  for (const form of root.querySelectorAll("form[data-file]")) {
    const chosen = form.querySelector("input[type=file]");
    chosen.addEventListener("change", () => {
      const large = chosen.files.length && chosen.files[0].size > MOST_BYTES;
      chosen.setCustomValidity(large ? "This file is too large to be a backup of a keyring." : "");
    });
    let read = false;
    const readFirst = async (event) => {
      if (read) {
        read = false;
        return;
      }
      event.preventDefault();
      event.stopImmediatePropagation();
      const content = new Uint8Array(await chosen.files[0].arrayBuffer());
      form.elements.content.value = base64(content);
      read = true;
      form.requestSubmit(event.submitter);
    };
    // Before the form is sent by others that listen.
    form.addEventListener("submit", readFirst, { capture: true });
  }
}
