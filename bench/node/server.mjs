// The official server as its documentation shows it. Prints its port; argument: the folder.
import { FileStore } from '@tus/file-store'
import { Server } from '@tus/server'

const store = new FileStore({ directory: process.argv[2] })
const server = new Server({ path: '/files', datastore: store })
const listening = server.listen({ host: '127.0.0.1', port: 0 }, () => {
  console.log(listening.address().port)
})
