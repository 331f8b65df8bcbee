import { createHmac, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type WebhookType, webhookTypes } from '../src/contracts/events.ts'

export interface ReceivedWebhook {
  readonly id: string
  readonly timestamp: number
  readonly type: WebhookType
  readonly at: string
  readonly data: Readonly<Record<string, unknown>>
  readonly text: string
}

/** A receiver of webhooks that verifies every signature with its own code. */
export interface WebhookReceiver extends AsyncDisposable {
  readonly url: string
  readonly secret: string
  /** The requests with a valid signature, in the order of their arrival. */
  readonly received: readonly ReceivedWebhook[]
  /**
   * The first request of each webhook. A webhook whose response comes too late, as on a busy machine, is sent again with
   * the same id.
   */
  readonly delivered: readonly ReceivedWebhook[]
  /** The requests whose signature is wrong. */
  readonly forged: readonly string[]
  /** Sets the function that handles further requests. With `null`, the receiver responds 204. */
  respond(handler: ((request: IncomingMessage, response: ServerResponse) => void) | null): void
  /** Stops listening, so that connections fail until `open` is called. */
  close(): Promise<void>
  open(): Promise<void>
  /** Returns the entry of `WEBHOOKS_FILE` for this receiver. */
  entry(events?: readonly WebhookType[]): object
}

/**
 * Verifies a signature as docs/webhooks.md describes for receivers. The code is independent of the coordinator's code.
 */
function verify(secret: string, headers: IncomingMessage['headers'], body: string): boolean {
  const key = Buffer.from(secret.replace(/^whsec_/, ''), 'base64')
  const signed = [headers['webhook-id'], headers['webhook-timestamp'], body].join('.')
  const expected = createHmac('sha256', key).update(signed).digest('base64')
  const age = Math.abs(Date.now() / 1_000 - Number(headers['webhook-timestamp']))
  return headers['webhook-signature'] === `v1,${expected}` && age < 300
}

export async function startWebhookReceiver(path = '/hooks'): Promise<WebhookReceiver> {
  const secret = `whsec_${randomBytes(32).toString('base64')}`
  const received: ReceivedWebhook[] = []
  const forged: string[] = []
  let handler: Parameters<WebhookReceiver['respond']>[0] = null
  const serve = () =>
    createServer((request, response) => {
      const chunks: Buffer[] = []
      request.on('data', (chunk: Buffer) => chunks.push(chunk))
      request.on('error', () => {})
      request.on('end', () => {
        const text = Buffer.concat(chunks).toString()
        if (!verify(secret, request.headers, text)) forged.push(text)
        else {
          const { type, timestamp: at, data } = JSON.parse(text)
          const { 'webhook-id': id, 'webhook-timestamp': timestamp } = request.headers
          received.push({ id: String(id), timestamp: Number(timestamp), type, at, data, text })
        }
        if (handler !== null) return handler(request, response)
        response.writeHead(204).end()
      })
    })
  let server = serve()
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const url = `http://127.0.0.1:${port}${path}`
  const receiver: WebhookReceiver = {
    url,
    secret,
    received,
    get delivered() {
      const isFirst = ({ id }: ReceivedWebhook, index: number): boolean =>
        received.findIndex((other) => other.id === id) === index
      return received.filter(isFirst)
    },
    forged,
    respond: (given) => void (handler = given),
    async close() {
      if (!server.listening) return
      server.close()
      server.closeAllConnections()
      await once(server, 'close')
    },
    async open() {
      server = serve()
      server.listen(port, '127.0.0.1')
      await once(server, 'listening')
    },
    entry: (events = webhookTypes) => ({ url, secret, events }),
    [Symbol.asyncDispose]: () => receiver.close(),
  }
  return receiver
}

/** Writes a `WEBHOOKS_FILE` with these entries, and returns the settings that name the file. */
export async function createWebhooksFile(entries: readonly object[]) {
  const folder = await mkdtemp(join(tmpdir(), 'webhooks-'))
  const file = join(folder, 'webhooks.json')
  const write = (content: readonly object[] | string): Promise<void> =>
    writeFile(file, typeof content === 'string' ? content : JSON.stringify(content))
  await write(entries)
  return {
    write,
    env: { WEBHOOKS_FILE: file, WEBHOOKS_ALLOWED_HOSTS: '127.0.0.1' },
    [Symbol.asyncDispose]: () => rm(folder, { recursive: true, force: true }),
  }
}
