// The main job by a client whose types are generated of both OpenAPI documents: it compiles only if
// the documents describe what is sent and answered. Reads whom to ask from stdin, as JSON, and writes
// what became of it to stdout.
import { text } from 'node:stream/consumers'
import createClient from 'openapi-fetch'
import type { components, paths as ApiPaths } from './api.js'
import type { paths as ProxyPaths } from './proxy.js'

interface Asked {
  proxy: string
  api: string
  email: string
  password: string
  definition: components['schemas']['Schema']['schema']
}

const asked = JSON.parse(await text(process.stdin)) as Asked
const proxy = createClient<ProxyPaths>({ baseUrl: asked.proxy })
const api = createClient<ApiPaths>({ baseUrl: asked.api })

/** The body of an answer that must not be a problem. */
function good<Body>(answer: { data?: Body; error?: unknown; response: Response }): Body {
  if (answer.data === undefined) {
    throw new Error(`${answer.response.url}: ${JSON.stringify(answer.error)}`)
  }
  return answer.data
}

const { email, password } = asked
const { access } = good(await proxy.POST('/api/token/', { body: { email, password } }))
for (const client of [proxy, api]) {
  client.use({
    onRequest: ({ request }) => request.headers.set('Authorization', `Bearer ${access}`),
  })
}

const user = good(await api.GET('/api/users/self/'))
const organization = user.organizations[0]!
const id = organization.split('/')[3]!
const path = good(await api.GET('/api/organizations/{id}/', { params: { path: { id } } })).url
const dataset = good(
  await api.POST('/api/datasets/', { body: { name: 'typescript', organization: path } }),
)
const schema = good(
  await proxy.POST('/api/schemas/', {
    body: { name: 'person', dataset: dataset.url, schema: asked.definition },
  }),
)

const people = { Ada: 36, Alan: 41, Grace: 85 }
const stored = good(
  await proxy.POST('/api/records/ingest/', {
    body: Object.entries(people).map(([name, age]) => ({ schema: schema.url, data: { name, age } })),
  }),
)
const bad = await proxy.POST('/api/records/ingest/', {
  body: [{ schema: schema.url, data: { age: 131 } }],
})
const refused = (bad.error?.errors ?? []).map((flaw) => flaw.field ?? '').sort()

/** Wait until a job has ended; its status. */
async function ended(job: string): Promise<string> {
  for (let attempt = 0; attempt < 300; attempt += 1) {
    const params = { path: { id: job } }
    const { status } = good(await proxy.GET('/api/jobs/{id}/', { params }))
    if (status === 'completed' || status === 'failed') return status
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
  throw new Error(`job ${job} does not end`)
}

const jobs = [
  good(
    await proxy.POST('/api/jobs/upload/', {
      params: { header: { 'X-Batch-Size': 5, 'X-On-Invalid': 'fail' } },
      body: [{ schema: schema.url, data: { name: 'Edsger', age: 72 } }],
    }),
  ).job_id,
  good(
    await proxy.POST('/api/jobs/upload/', {
      params: { query: { schema: schema.id } },
      headers: { 'Content-Type': 'text/csv' },
      body: 'name,age\nMargaret,60\n',
      bodySerializer: (body) => body,
    }),
  ).job_id,
]

const csv = new TextEncoder().encode(`name,age,schema_id:${schema.id}\nBarbara,80\n`)
const upload = await proxy.POST('/api/files/', {
  params: {
    header: {
      'Tus-Resumable': '1.0.0',
      'Upload-Length': csv.length,
      'Upload-Metadata': `filename ${btoa('people.csv')}`,
    },
  },
})
const file = upload.response.headers.get('Location')!.split('/').at(-1)!
await proxy.PATCH('/api/files/{id}/', {
  params: {
    path: { id: file },
    header: { 'Tus-Resumable': '1.0.0', 'Upload-Offset': 0 },
  },
  headers: { 'Content-Type': 'application/offset+octet-stream' },
  body: '',
  bodySerializer: () => csv,
})
jobs.push(upload.response.headers.get('X-Job-Id')!)
const statuses: string[] = []
for (const job of jobs) statuses.push(await ended(job))

const found = good(
  await proxy.POST('/api/records/search/', {
    body: {
      schema: schema.url,
      where: { field: 'age', op: 'ge', value: 50 },
      order_by: ['-age'],
      count: true,
    },
  }),
)
const measured = good(
  await proxy.POST('/api/records/aggregate/', {
    body: { schema: schema.url, measures: [{ op: 'max', field: 'age' }] },
  }),
)
const sealed = good(
  await api.GET('/api/records/', { params: { query: { schema: schema.id } } }),
)

const params = { path: { id: stored[0]!.id } }
const patched = good(
  await proxy.PATCH('/api/records/{id}/', { params, body: { data: { age: 37 } } }),
)
await proxy.DELETE('/api/records/{id}/', { params })
const deleted = await proxy.GET('/api/records/{id}/', { params })

await api.DELETE('/api/datasets/{id}/', {
  params: { path: { id: dataset.id }, query: { cascade: true } },
})
const gone = await api.GET('/api/schemas/{id}/', { params: { path: { id: schema.id } } })

process.stdout.write(
  JSON.stringify({
    ingested: stored.length,
    refused,
    jobs: statuses,
    found: found.results.map((record) => record.data.name),
    count: found.count,
    maximum: 'measures' in measured ? measured.measures[0]!.value : null,
    patched: patched.data,
    deleted: deleted.response.status,
    sealed: sealed.results.length,
    gone: gone.error?.code,
  }),
)
