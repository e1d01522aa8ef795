// What somebody types while an answer is on its way survives the part of the page that it replaces:
// choosing how to compare and typing what with are one movement.

const typed = new Map();

/** Whether a key belongs to an input method, as Enter does that chooses a word of Japanese. Safari
 * says so only by the old code of such keys. */
export const isComposing = (event) => event.isComposing || event.keyCode === 229;

/** Also a text that nobody has typed since the request was sent. */
export const keepText = (field) => typed.set(field.id, field.value);

export function keepTyping() {
  document.addEventListener("htmx:beforeRequest", () => typed.clear());
  document.addEventListener("input", ({ target }) => {
    // What is chosen in a file input is no text, and no script may set it.
    if (target.id && target.matches("input:not([type=file]), textarea")) typed.set(target.id, target.value);
  });
  document.addEventListener("htmx:afterSwap", () => {
    for (const [id, text] of typed) {
      const field = document.getElementById(id);
      // Setting what is there already would move the caret.
      if (field?.matches("input, textarea") && field.value !== text) field.value = text;
    }
  });
}
