// The upload page: files go to /api/files/ by TUS, which makes a job of each.
//
// Nothing of a file stays in the browser: between visits it remembers where an unfinished upload
// is, and choosing the same file again goes on there. (Uppy's Golden Retriever would keep the
// file's plaintext instead.)

import Uppy from "@uppy/core";
import Dashboard from "@uppy/dashboard";
import Tus from "@uppy/tus";
import { addressesOf } from "./addresses.js";

const TYPES = {
  csv: "text/csv",
  json: "application/json",
  ndjson: "application/x-ndjson",
  jsonl: "application/x-ndjson",
};
/** What will not be accepted the second time either. */
const FINAL = new Set([400, 401, 403, 404, 413, 415, 507]);

function typeOf(file) {
  // By extension: what browsers make of .csv depends on the spreadsheet that is installed.
  return TYPES[file.name.split(".").pop().toLowerCase()];
}

function start(place) {
  const schema = place.dataset.schema;
  const csrf = document.querySelector("meta[name=csrf]").content;
  const skip = document.querySelector("#skip");
  const jobs = document.querySelector("#jobs");
  const uppy = new Uppy({
    restrictions: { allowedFileTypes: Object.keys(TYPES).map((ending) => `.${ending}`) },
  });
  uppy.use(Dashboard, {
    inline: true,
    target: place,
    width: "100%",
    height: 330,
    theme: "auto",
    proudlyDisplayPoweredByUppy: false,
    disableThumbnailGenerator: true,
    note: "CSV with a header row, or records of JSON: {\"data\": {…}}. Any size.",
  });
  uppy.use(Tus, {
    endpoint: "/api/files/",
    limit: 2,
    retryDelays: [500, 1000, 3000, 5000, 10000, 20000, 30000, 60000],
    headers: () => ({ "X-CSRFToken": csrf, "X-On-Invalid": skip.checked ? "skip" : "fail" }),
    allowedMetaFields: ["filename", "filetype", "schema"],
    removeFingerprintOnSuccess: true,
    urlStorage: addressesOf(schema),
    onShouldRetry: (error, _attempt, _options, usual) =>
      !FINAL.has(error.originalResponse?.getStatus()) && usual(error),
    onAfterResponse: (_request, response) => {
      if (response.getHeader("X-Job-Id")) jobs.dispatchEvent(new Event("refresh"));
    },
  });
  uppy.on("file-added", (file) =>
    uppy.setFileMeta(file.id, { filename: file.name, filetype: typeOf(file), schema }),
  );
  uppy.on("complete", () => jobs.dispatchEvent(new Event("refresh")));
  window.addEventListener("beforeunload", (event) => {
    const moving = ({ progress }) => progress.uploadStarted && !progress.uploadComplete;
    if (uppy.getFiles().some(moving)) event.preventDefault();
  });
}

const place = document.querySelector("#uppy");
if (place) start(place);
