// Times in the time zone of this browser; the instant in UTC is their title. Without this file pages
// say UTC.

import htmx from "htmx.org";

const parts = { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
const near = new Intl.DateTimeFormat("en-GB", parts);
const far = new Intl.DateTimeFormat("en-GB", { ...parts, year: "numeric" });
// A time of this day.
const clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });

const minute = (instant) =>
  (instant.getFullYear() === new Date().getFullYear() ? near : far).format(instant);

function show(place) {
  const instant = new Date(place.dateTime);
  if (Number.isNaN(instant.getTime()) || place.title) return;
  place.title = place.textContent;
  place.textContent = place.hasAttribute("data-clock") ? clock.format(instant) : minute(instant);
}

/** The text of an error of the proxy, with its times in the time zone of this browser. */
export function withTimes(text) {
  return text.replace(/\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ/g, (written) => {
    const instant = new Date(written);
    return Number.isNaN(instant.getTime()) ? written : minute(instant);
  });
}

export function showTimes() {
  htmx.onLoad((root) => {
    for (const place of root.querySelectorAll("time[datetime]")) show(place);
  });
}
