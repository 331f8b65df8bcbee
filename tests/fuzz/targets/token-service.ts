import type { Target } from '../fuzz.ts'
import { KEY } from '../gateway.ts'
import { exchange } from '../raw-http.ts'
import { connectCompany } from '../../support/clients/user-actions.ts'
import { startSystem } from '../../support/system.ts'

/** The key that encrypts the exported document. A passphrase would need a slow key derivation for each input. */
const DOCUMENT_KEY = Buffer.alloc(32, 7).toString('base64')

const request = (line: string, headers: readonly string[], body?: string): Buffer =>
  Buffer.from(
    [
      `${line} HTTP/1.1`,
      'Host: localhost',
      ...headers,
      ...(body === undefined
        ? []
        : ['Content-Type: application/json', `Content-Length: ${Buffer.byteLength(body)}`]),
      '',
      body ?? '',
    ].join('\r\n'),
  )
const withKey = `Authorization: Bearer ${KEY}`

/**
 * Starts a token-service with the credential of one company. Returns a function for valid calls with the service key,
 * and a function that sends raw bytes and fails if the service responds with 500.
 */
async function startCustody() {
  await using opened = new AsyncDisposableStack()
  const system = opened.use(await startSystem(['sandbox-provider']))
  const started = system.start('token-service', { SERVICE_API_KEY: KEY, LOG_LEVEL: 'error' })
  await system.ready('token-service')
  await connectCompany(system, '1')
  const call = async (path: string, init: RequestInit = {}): Promise<string> => {
    const response = await fetch(system.url('token-service') + path, {
      ...init,
      headers: { Authorization: `Bearer ${KEY}`, 'Content-Type': 'application/json' },
    })
    const text = await response.text()
    if (!response.ok) throw new Error(`${path} responded with ${response.status}: ${text}`)
    return text
  }
  const port = Number(new URL(system.url('token-service')).port)
  const running = opened.move()
  return {
    call,
    callbackUrl: system.url('token-service'),
    processes: [started],
    async send(input: Buffer): Promise<void> {
      for (const { status, body } of await exchange(port, input, { quietMs: 100 }))
        if (status === 500)
          throw new Error(`token-service responded with 500: ${body.slice(0, 500)}`)
    },
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  }
}
type Custody = Awaited<ReturnType<typeof startCustody>>

interface Listed {
  readonly items: readonly { readonly Name: string; readonly Version: number }[]
}
const credentialsOf = async (custody: Custody): Promise<string> => {
  const { items } = JSON.parse(await custody.call('/credentials')) as Listed
  return items.map(({ Name, Version }) => `${Name}/${Version}`).join()
}

/**
 * Sends mutated requests to `/authorizations` and `/callback`. None of them may store, replace or damage a credential.
 */
export async function callbacks(): Promise<Target> {
  const custody = await startCustody()
  const started = await fetch(`${custody.callbackUrl}/authorize`, { redirect: 'manual' })
  const cookie = started.headers
    .getSetCookie()
    .map((header) => header.split(';')[0])
    .join('; ')
  const state = new URL(started.headers.get('Location') ?? '').searchParams.get('state') ?? ''
  const token = await custody.call('/credentials/ACC-1/token')
  const created = JSON.parse(
    await custody.call('/connect-links', { method: 'POST', body: '{"realm":"2"}' }),
  ) as { readonly url: string }
  const link = new URL(created.url).pathname
  const query = `code=made-up-code&state=${encodeURIComponent(state)}&realmId=1`
  return {
    inputs: [
      request('GET /authorize?return_to=http%3A%2F%2Flocalhost%2Fdone', ['Accept: text/html']),
      request(`GET /callback?${query}`, [`Cookie: ${cookie}`]),
      request(`GET /callback?error=access_denied&state=${encodeURIComponent(state)}`, [
        `Cookie: ${cookie}`,
      ]),
      request('GET /callback?code=made-up-code&state=unknown&realmId=1', ['Cookie: a=b']),
      request('POST /callback', [withKey], '{"RealmID":"1","Code":"made-up-code"}'),
      request(`GET ${link}`, ['Accept: text/html']),
      request(`POST ${link}`, ['Accept: text/html', 'Sec-Fetch-Site: same-origin']),
      request('GET /reconnect?realmId=1', ['Accept: text/html']),
      request('POST /connect-links', [withKey], '{"realm":"2","label":"Acme","expires_in":60}'),
    ],
    processes: custody.processes,
    check: (input) => custody.send(input),
    async checkAll() {
      if ((await custody.call('/credentials/ACC-1/token')) !== token)
        throw new Error('a mutated callback changed the credential')
      const stored = await credentialsOf(custody)
      if (stored !== 'ACC-1/1') throw new Error(`unexpected stored credentials: ${stored}`)
    },
    [Symbol.asyncDispose]: () => custody[Symbol.asyncDispose](),
  }
}

/**
 * Sends mutated imports of an exported document. No import may store a credential under another name or with
 * another token.
 */
export async function imports(): Promise<Target> {
  const custody = await startCustody()
  const { Authenticator: token } = JSON.parse(await custody.call('/credentials/ACC-1/token')) as {
    readonly Authenticator: string
  }
  const document = await custody.call('/exports', {
    method: 'POST',
    body: JSON.stringify({ Names: ['ACC-1'], Key: DOCUMENT_KEY }),
  })
  const body = (members: string): string =>
    `{"Document":${document},"Key":"${DOCUMENT_KEY}"${members}}`
  await custody.call('/imports', { method: 'POST', body: body(',"Overwrite":true') })
  return {
    inputs: [
      request('POST /imports', [withKey], body('')),
      request('POST /imports', [withKey], body(',"Overwrite":true')),
      request('POST /imports', [withKey], body(',"Overwrite":false')),
    ],
    processes: custody.processes,
    check: (input) => custody.send(input),
    async checkAll() {
      const stored = await credentialsOf(custody)
      if (!/^ACC-1\/\d+$/.test(stored)) throw new Error(`unexpected stored credentials: ${stored}`)
      const now = JSON.parse(await custody.call('/credentials/ACC-1/token')) as {
        readonly Authenticator: string
      }
      if (now.Authenticator !== token) throw new Error('a mutated import changed the access token')
    },
    [Symbol.asyncDispose]: () => custody[Symbol.asyncDispose](),
  }
}
