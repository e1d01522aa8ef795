// The first rows of a file, however long it is, cut where a row ends.

const HEAD_BYTES = 512 << 10;
// A workbook is read whole, and so may be an object of JSON; as a form takes it.
const WHOLE_BYTES = 5 << 19;
const EDGE_BYTES = 64 << 10;

/** Where the last whole row of CSV ends: at a line break outside of quotes. */
function endOfCsv(text) {
  let quoted = false;
  let end = 0;
  for (let at = 0; at < text.length; at += 1) {
    const char = text[at];
    if (char === '"') quoted = !quoted;
    else if (char === "\n" && !quoted) end = at + 1;
  }
  return end;
}

/** Where the last whole record of a JSON array ends. */
function endOfArray(text) {
  let depth = 0;
  let end = 0;
  for (let at = 0; at < text.length; at += 1) {
    const char = text[at];
    if (char === '"') {
      for (at += 1; at < text.length && text[at] !== '"'; at += 1) if (text[at] === "\\") at += 1;
    } else if (char === "[" || char === "{") depth += 1;
    else if (char === "]" || char === "}") {
      depth -= 1;
      if (depth === 1) end = at + 1;
    }
  }
  return end;
}

export async function firstRows(file) {
  const text = await file.slice(0, HEAD_BYTES).text();
  if (file.size <= HEAD_BYTES) return text;
  const begin = text.trimStart()[0];
  if (begin === "[") return `${text.slice(0, endOfArray(text))}]`;
  return text.slice(0, begin === "{" ? text.lastIndexOf("\n") + 1 : endOfCsv(text));
}

/** The first bytes of a file in base64 for addresses. */
export async function firstBytes(file) {
  const begin = (await file.slice(0, EDGE_BYTES).text()).trimStart();
  const most = begin.startsWith("PK") || begin.startsWith("{") ? WHOLE_BYTES : HEAD_BYTES;
  const bytes = new Uint8Array(await file.slice(0, most).arrayBuffer());
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_");
}

/** The first line of CSV, and its length in bytes; null where it does not end in the file's head. */
async function headerOf(file) {
  const head = new Uint8Array(await file.slice(0, HEAD_BYTES).arrayBuffer());
  if (head[0] >= 0xfe) return null; // UTF-16, by its mark
  let quoted = false;
  for (let at = 0; at < head.length; at += 1) {
    if (head[at] === 0x22) quoted = !quoted;
    else if (head[at] === 0x0a && !quoted) {
      const line = new TextDecoder().decode(head.subarray(0, at + 1));
      return { line, size: at + 1 };
    }
  }
  return null;
}

/**
 * The file under another header; the rest of it is not read. A file with another header than `like`
 * has, for which this one was made, stays as it is.
 */
export async function underHeader(file, header, like) {
  const [own, theirs] = [await headerOf(file), await headerOf(like)];
  if (!own || own.line !== theirs?.line) return file;
  const parts = [header, file.slice(own.size)];
  return new File(parts, file.name, { type: file.type, lastModified: file.lastModified });
}

/** SHA-256 of a file's first and last 64 KiB; empty where the browser computes none. */
export async function digestOfEnds(file) {
  if (!crypto.subtle) return "";
  const ends = new Blob([
    file.slice(0, EDGE_BYTES),
    file.slice(Math.max(0, file.size - EDGE_BYTES)),
  ]);
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", await ends.arrayBuffer()));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
