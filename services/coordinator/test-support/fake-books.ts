import type { IncomingMessage, ServerResponse } from 'node:http'
import { text } from 'node:stream/consumers'
import type { Target } from './fake-target.ts'

type Stored = Record<string, unknown> & { readonly Id: string; readonly SyncToken: string }

export interface FakeBooks {
  /** The invoices of the company, in the order of their creation. */
  readonly invoices: readonly Stored[]
  /** How long a new invoice is not found by queries, in ms. */
  visibleAfterMs: number
  /** Whether a call with the idempotency key of an earlier call gets the response of that call. */
  playsBack: boolean
  /** Called with each stored invoice before the response. If it returns false, the connection is closed instead. */
  onStored: (invoice: Stored) => boolean
  /** Changes the number that a new invoice gets. */
  renumber: (given: unknown) => unknown
  /** Stores an invoice as a person does. */
  add(invoice: object, createdAt?: number): Stored
}

/** Makes a target respond like the invoices of a company of the provider. */
export function fakeBooks(
  target: Target,
  { realm, now = Date.now, firstId = 1 }: { realm: string; now?: () => number; firstId?: number },
): FakeBooks {
  const stored: (Stored & { readonly visibleAt: number })[] = []
  const responses = new Map<string, string>()
  const company = `/v3/company/${realm}`
  const shown = ({ visibleAt: _visibleAt, ...invoice }: (typeof stored)[number]): Stored => invoice
  const books: FakeBooks = {
    get invoices() {
      return stored.map(shown)
    },
    visibleAfterMs: 0,
    playsBack: true,
    onStored: () => true,
    renumber: (given) => given,
    add(invoice, createdAt = now()) {
      const { DocNumber, ...rest } = invoice as { DocNumber?: unknown }
      const at = new Date(createdAt).toISOString()
      const one = {
        ...rest,
        DocNumber: books.renumber(DocNumber),
        Id: `${firstId + stored.length}`,
        SyncToken: '0',
        MetaData: { CreateTime: at, LastUpdatedTime: at },
        visibleAt: createdAt + books.visibleAfterMs,
      }
      stored.push(one)
      return shown(one)
    },
  }
  const send = (response: ServerResponse, status: number, document: object): string => {
    const body = JSON.stringify(document)
    response.writeHead(status, { 'content-type': 'application/json' })
    response.end(body)
    return body
  }
  target.on(`${company}/invoice`, async (request: IncomingMessage, response) => {
    const key = String(request.headers['idempotency-key'])
    const body = JSON.parse(await text(request)) as Record<string, unknown>
    const known = books.playsBack ? responses.get(key) : undefined
    const index = stored.findIndex(({ Id }) => Id === body['Id'])
    const before = stored[index]
    const changed = { ...before, ...body, SyncToken: `${Number(before?.SyncToken) + 1}` }
    if (known === undefined && before !== undefined)
      stored[index] = changed as (typeof stored)[number]
    const invoice = before === undefined ? null : shown(changed as (typeof stored)[number])
    const document =
      known ??
      JSON.stringify({
        Invoice: invoice ?? books.add(body),
        time: new Date(now()).toISOString(),
      })
    responses.set(key, document)
    if (books.onStored((JSON.parse(document) as { Invoice: Stored }).Invoice)) {
      response.writeHead(200, { 'content-type': 'application/json' })
      response.end(document)
    } else request.socket.destroy()
  })
  target.on(`${company}/query`, (request, response) => {
    const statement = new URL(request.url ?? '', 'http://target').searchParams.get('query') ?? ''
    const [, field = '', value = ''] = /where (\w+) = '((?:[^'\\]|\\.)*)'/.exec(statement) ?? []
    const plain = value.replaceAll(/\\(.)/g, '$1')
    const Invoice = stored
      .filter((one) => one[field as 'Id'] === plain && one.visibleAt <= now())
      .map(shown)
    send(response, 200, { QueryResponse: Invoice.length === 0 ? {} : { Invoice } })
  })
  return books
}
