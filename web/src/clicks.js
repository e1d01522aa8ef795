// Safari and Firefox on macOS do not focus a button, a checkbox or a radio button that is clicked:
// the focus is nowhere then. Pages go by it, to bring it back after an answer, and to know whether
// somebody has left a form.

const CLICKED = "button, input:is([type=checkbox], [type=radio])";

export function focusClicked() {
  addEventListener("mousedown", ({ button, target }) => {
    const control = target.closest?.("label")?.control ?? target.closest?.(CLICKED);
    if (button || !control?.matches(CLICKED)) return;
    // After the browser has moved the focus, or has not.
    setTimeout(() => document.activeElement === document.body && control.focus({ preventScroll: true }));
  });
}
