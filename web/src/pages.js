// What every page runs: htmx, a sample taken from a dropped file, and live progress of jobs.
// Pages work without it too; what needs it says so in a <noscript>.

import htmx from "htmx.org";
import { takeSamples } from "./samples.js";
import { followJobs } from "./jobs.js";

htmx.onLoad((root) => {
  takeSamples(root);
  followJobs(root);
});
