// Uploads one file with tus-js-client, as its users do. Reads what to do from stdin, as JSON, and
// writes what became of it to stdout. With `storage`, a file, it remembers its uploads there and goes
// on with one that was begun before; at `abortAt` bytes it stops.
import { createReadStream } from 'node:fs'
import { createRequire } from 'node:module'
import { PassThrough } from 'node:stream'
import { text } from 'node:stream/consumers'

const require = createRequire(new URL('../../web/package.json', import.meta.url))
const tus = require('tus-js-client')

const { file, deferred, storage, abortAt, ...options } = JSON.parse(await text(process.stdin))
// Of a file the client knows the size; of any other stream it learns it at the end.
const source = deferred ? createReadStream(file).pipe(new PassThrough()) : createReadStream(file)
const headers = {}
const upload = new tus.Upload(source, {
  ...options,
  uploadLengthDeferred: deferred,
  ...(storage && { urlStorage: new tus.FileUrlStorage(storage) }),
  onProgress: (sent) => {
    if (abortAt && sent >= abortAt) upload.abort().then(() => finish({ url: upload.url, headers }))
  },
  onAfterResponse: (request, response) => {
    if (request.getMethod() === 'POST') {
      for (const name of ['X-Job-Id', 'X-Job-Status-Url', 'X-Job-Websocket-Url']) {
        headers[name] = response.getHeader(name) ?? headers[name]
      }
    }
  },
  onError: (error) => finish({ error: String(error) }),
  onSuccess: () => finish({ url: upload.url, headers }),
})
const [previous] = storage ? await upload.findPreviousUploads() : []
if (previous) upload.resumeFromPreviousUpload(previous)
upload.start()

function finish(result) {
  process.stdout.write(JSON.stringify({ ...result, resumed: previous?.uploadUrl ?? null }) + '\n')
  process.exit(0)
}
