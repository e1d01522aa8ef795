// How numbers are said, as the pages say them.

const number = new Intl.NumberFormat("en");

export const counted = (count, one, many = `${one}s`) =>
  `${number.format(count)} ${count === 1 ? one : many}`;

export const digits = (value) => number.format(Math.round(value));

/** Bytes, in the largest unit that leaves a number above one. */
export function size(bytes) {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let at = 0;
  let value = bytes;
  while (value >= 1000 && at < units.length - 1) {
    value /= 1000;
    at += 1;
  }
  return `${at === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[at]}`;
}

/** The time that is left, roughly. */
export function left(seconds) {
  if (!Number.isFinite(seconds)) return "";
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s left`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min left`;
  return `${Math.round(seconds / 3600)} h left`;
}

export function sentence(text) {
  return text ? `${text[0].toUpperCase()}${text.slice(1).replace(/\.+$/, "")}.` : "";
}

/** What grows, and how fast it has grown over the last seconds. */
export class Speed {
  #seen = [];

  /** Per second; 0 while nobody can tell. */
  of(value, now = performance.now()) {
    this.#seen.push([now, value]);
    while (this.#seen.length > 2 && now - this.#seen[0][0] > 8000) this.#seen.shift();
    const [then, before] = this.#seen[0];
    return now - then < 300 ? 0 : Math.max(0, ((value - before) * 1000) / (now - then));
  }
}
