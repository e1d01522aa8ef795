// Bundles web/src into the package's static/built, and writes down whose code is in it.
//
// Every entry is one file without imports at run time: pages load it from the proxy alone. What is
// inlined by the bundler is code of packages that package-lock.json pins.

import { mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import esbuild from "esbuild";

const here = path.dirname(fileURLToPath(import.meta.url));
const target = path.join(here, "../src/encrypted_records/proxy/pages/static/built");

/** The packages whose files went into the bundles, by folder. */
function packagesOf(inputs) {
  const found = new Set();
  for (const input of inputs) {
    const folder = /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(input);
    if (folder) found.add(folder[1]);
  }
  return [...found].sort();
}

async function licenceOf(folder) {
  const about = JSON.parse(await readFile(path.join(here, folder, "package.json"), "utf8"));
  const names = await readdir(path.join(here, folder));
  const name = names.find((one) => /^licen[cs]e/i.test(one));
  const text = name ? await readFile(path.join(here, folder, name), "utf8") : about.license;
  return `${about.name} ${about.version}\n\n${text.trim()}\n`;
}

await rm(target, { recursive: true, force: true });
await mkdir(target, { recursive: true });
const done = await esbuild.build({
  absWorkingDir: here,
  entryPoints: ["src/pages.js", "src/upload.js"],
  outdir: target,
  bundle: true,
  minify: true,
  metafile: true,
  format: "iife",
  target: ["es2022"],
  legalComments: "none",
  logLevel: "warning",
});
const licences = await Promise.all(packagesOf(Object.keys(done.metafile.inputs)).map(licenceOf));
await writeFile(path.join(target, "LICENCES.txt"), licences.join(`\n${"-".repeat(72)}\n\n`));
