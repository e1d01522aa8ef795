// What every page runs: htmx, files that are put into forms, and live progress of jobs.
// Pages work without it too; what needs it says so in a <noscript>.

import htmx from "htmx.org";
import { takeSamples } from "./samples.js";
import { followJobs } from "./jobs.js";
import { takeFiles } from "./files.js";
import { keepTyping } from "./typing.js";

keepTyping();
htmx.onLoad((root) => {
  takeSamples(root);
  followJobs(root);
  takeFiles(root);
});
