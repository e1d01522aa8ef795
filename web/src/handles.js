// The two handles below a histogram: they move over its columns, with mouse, finger or arrow keys, and
// write the ends of the stretch into the fields beside them. Without this file these are typed.

/** Arrow keys change a handle step by step: the question is asked when they rest. */
const AFTER_MS = 700;

let waiting = 0;

const handlesOf = (place) => [...place.querySelectorAll("input[type=range]")];
const columnsOf = (place) => [...place.parentElement.querySelector("svg[data-brush]").querySelectorAll(".hits rect")];
const fieldOf = (handle) => document.getElementById(handle.dataset.handle);

function draw(place) {
  const [low, high] = handlesOf(place).map(({ value }) => Number(value));
  const columns = columnsOf(place);
  columns.forEach((column, at) => column.classList.toggle("chosen", at >= low && at <= high));
  const [first, last] = [columns[low].dataset.low, columns[high].dataset.high];
  [first, last].forEach((text, at) => handlesOf(place)[at].setAttribute("aria-valuetext", text));
  return [first, last];
}

function move(handle) {
  const place = handle.parentElement;
  const [low, high] = handlesOf(place);
  // Neither handle passes the other.
  if (Number(low.value) > Number(high.value)) handle.value = handle === low ? high.value : low.value;
  const ends = draw(place);
  [low, high].forEach((end, at) => (fieldOf(end).value = ends[at]));
}

function askSoon(handle) {
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    const { form } = fieldOf(handle) ?? {};
    form?.requestSubmit(form.querySelector("button[value=search]"));
  }, AFTER_MS);
}

export function useHandles() {
  document.addEventListener("input", ({ target }) => target.matches("[data-handle]") && move(target));
  document.addEventListener("change", ({ target }) => target.matches("[data-handle]") && askSoon(target));
}

function handleOf(field, at, most, word, spoken) {
  const handle = document.createElement("input");
  handle.type = "range";
  Object.assign(handle, { min: 0, max: most, value: at, id: `handle-${field.id}` });
  handle.dataset.handle = field.id;
  handle.setAttribute("aria-valuetext", spoken);
  handle.setAttribute("aria-label", field.getAttribute("aria-label").replace(/ (from|to)$/, `: ${word}`));
  return handle;
}

/** The first and the last column of the stretch that is asked for already. */
function askedColumns(columns, from, to) {
  const valueOf = from.type === "date" ? (text) => text : Number;
  const [least, greatest] = [from.dataset.asked, to.dataset.asked];
  const low = least ? columns.findIndex(({ dataset }) => valueOf(dataset.high) >= valueOf(least)) : 0;
  // A year stands for all of its days.
  const last = from.type === "date" ? `${greatest}\uffff` : Number(greatest);
  const high = greatest ? columns.findLastIndex(({ dataset }) => valueOf(dataset.low) <= last) : columns.length - 1;
  return [low < 0 ? columns.length - 1 : low, Math.max(high, 0)];
}

/** Handles of pictures that have just come. */
export function showHandles(root) {
  for (const ends of root.querySelectorAll(".ends")) {
    const chart = ends.parentElement.querySelector("svg[data-brush]");
    const columns = chart ? chart.querySelectorAll(".hits rect") : [];
    const most = columns.length - 1;
    if (most < 1 || ends.previousElementSibling.matches(".handles")) continue;
    const place = document.createElement("div");
    place.className = chart.querySelector("text") ? "handles inset" : "handles";
    const [from, to] = ends.querySelectorAll("input");
    const [low, high] = askedColumns([...columns], from, to);
    place.append(
      handleOf(from, low, most, "least", columns[low].dataset.low),
      handleOf(to, high, most, "greatest", columns[high].dataset.high),
    );
    ends.before(place);
    if (from.dataset.asked || to.dataset.asked) draw(place);
  }
}
