// Where tus-js-client remembers the addresses of unfinished uploads. Its own storage would keep the
// file's name beside them; here a hash stands for all that is known of the file.

const PREFIX = "upload::";

async function named(text) {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return PREFIX + btoa(String.fromCharCode(...new Uint8Array(digest)));
}

/** A URL storage for the uploads to one schema: the same file may go to several. */
export function addressesOf(schema) {
  return {
    async findAllUploads() {
      return [];
    },
    async findUploadsByFingerprint(fingerprint) {
      const urlStorageKey = await named(`${schema} ${fingerprint}`);
      const found = localStorage.getItem(urlStorageKey);
      return found ? [{ ...JSON.parse(found), urlStorageKey }] : [];
    },
    async removeUpload(urlStorageKey) {
      localStorage.removeItem(urlStorageKey);
    },
    async addUpload(fingerprint, { size, creationTime, uploadUrl }) {
      const urlStorageKey = await named(`${schema} ${fingerprint}`);
      localStorage.setItem(urlStorageKey, JSON.stringify({ size, creationTime, uploadUrl }));
      return urlStorageKey;
    },
  };
}
