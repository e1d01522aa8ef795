// Times in the time zone of this browser; the instant in UTC is their title. Without this file pages
// say UTC.

import htmx from "htmx.org";

const parts = { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
const near = new Intl.DateTimeFormat("en-GB", parts);
const far = new Intl.DateTimeFormat("en-GB", { ...parts, year: "numeric" });
// A time of this day.
const clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });

function show(place) {
  const instant = new Date(place.dateTime);
  if (Number.isNaN(instant.getTime()) || place.title) return;
  const isNear = instant.getFullYear() === new Date().getFullYear();
  place.title = place.textContent;
  const format = place.hasAttribute("data-clock") ? clock : isNear ? near : far;
  place.textContent = format.format(instant);
}

export function showTimes() {
  htmx.onLoad((root) => {
    for (const place of root.querySelectorAll("time[datetime]")) show(place);
  });
}
