// What the tests of uploads run in a page: tus-js-client, as a page of ours or of our users would
// use it. Each returns the URL of the upload.
import * as tus from 'tus-js-client'

const ENDPOINT = '/api/files/'

function fileOf(text) {
  return new File([text], 'people.csv', { type: 'text/csv', lastModified: 1 })
}

function settings(file, authorization, options) {
  return {
    endpoint: ENDPOINT,
    headers: { Authorization: authorization },
    metadata: { filename: file.name, filetype: file.type },
    ...options,
  }
}

window.byTusJs = (text, authorization, options) =>
  new Promise((resolve, reject) => {
    const file = fileOf(text)
    const upload = new tus.Upload(file, {
      ...settings(file, authorization, options),
      onError: reject,
      onSuccess: () => resolve(upload.url),
    })
    upload.findPreviousUploads().then(([previous]) => {
      if (previous) upload.resumeFromPreviousUpload(previous)
      window.resumed = Boolean(previous)
      upload.start()
    })
  })

// Stops for good after the first chunk, as a page does that is closed.
window.leaveAfterOneChunk = (text, authorization, options) =>
  new Promise((resolve, reject) => {
    const file = fileOf(text)
    const upload = new tus.Upload(file, {
      ...settings(file, authorization, options),
      onError: reject,
      onChunkComplete: () => upload.abort().then(() => resolve(upload.url)),
    })
    upload.start()
  })
