// What every page runs: htmx, what keeps pages from going blank, keys, files that are put into
// forms, and live progress of jobs. Pages work without it too; what needs it says so in a <noscript>.

import htmx from "htmx.org";
import { countChanges } from "./matrix.js";
import { keepPages } from "./answers.js";
import { showBusy } from "./busy.js";
import { sendForms } from "./forms.js";
import { takeSamples } from "./samples.js";
import { followJobs } from "./jobs.js";
import { crossFields } from "./cross.js";
import { takeDrops } from "./drops.js";
import { editCells } from "./cells.js";
import { focusClicked } from "./clicks.js";
import { useHandles } from "./handles.js";
import { listenToKeys } from "./keys.js";
import { completeLine } from "./line.js";
import { openLinks } from "./links.js";
import { takeFiles } from "./files.js";
import { keepPath } from "./paths.js";
import { useLens } from "./lens.js";
import { tendRecords } from "./records.js";
import { useTicks } from "./ticks.js";
import { countRequests } from "./strip.js";
import { showTimes } from "./times.js";
import { watchStatus } from "./status.js";
import { useWidths } from "./widths.js";
import { keepTyping } from "./typing.js";

keepPath();
sendForms();
showBusy();
keepTyping();
focusClicked();
keepPages();
watchStatus();
listenToKeys();
tendRecords();
completeLine();
useLens();
useHandles();
useTicks();
useWidths();
editCells();
takeDrops();
crossFields();
showTimes();
countRequests();
countChanges();
// The forms are to be ready for it.
document.addEventListener("DOMContentLoaded", openLinks);
htmx.onLoad((root) => {
  takeSamples(root);
  followJobs(root);
  takeFiles(root);
});
