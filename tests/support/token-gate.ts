import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { buffer } from 'node:stream/consumers'

/** A token endpoint in front of the provider's own, that counts the calls in hand and can hold them. */
export interface TokenGate extends AsyncDisposable {
  /** The provider's discovery document, with this token endpoint in it. */
  readonly discoveryUrl: string
  /** From here on calls are kept before the provider sees them, until `release`. */
  hold(): void
  release(): void
  inHand(): number
  /** The most that were in hand at a time since the last call of this. */
  takeMostInHand(): number
}

const DISCOVERY = '/.well-known/openid_configuration'
/** What of a token call means something to the provider. */
const FORWARDED = ['authorization', 'content-type', 'x-include-refresh-token-hard-expires-in']

export async function startTokenGate(providerUrl: string): Promise<TokenGate> {
  let inHand = 0
  let mostInHand = 0
  let gate = Promise.resolve()
  let open = (): void => {}

  async function passOn(request: IncomingMessage, response: ServerResponse): Promise<void> {
    inHand += 1
    mostInHand = Math.max(mostInHand, inHand)
    try {
      const body = await buffer(request)
      await gate
      const headers = FORWARDED.flatMap((name): [string, string][] => {
        const value = request.headers[name]
        return typeof value === 'string' ? [[name, value]] : []
      })
      const target = providerUrl + (request.url ?? '')
      const answer = await fetch(target, { method: 'POST', headers, body: new Uint8Array(body) })
      response
        .writeHead(answer.status, { 'Content-Type': answer.headers.get('Content-Type') ?? '' })
        .end(await answer.text())
    } finally {
      inHand -= 1
    }
  }

  async function discover(response: ServerResponse): Promise<void> {
    const document = (await (await fetch(providerUrl + DISCOVERY)).json()) as {
      token_endpoint: string
    }
    const endpoint = document.token_endpoint.replace(providerUrl, url)
    response
      .writeHead(200, { 'Content-Type': 'application/json' })
      .end(JSON.stringify({ ...document, token_endpoint: endpoint }))
  }

  const server = createServer((request, response) => {
    const answering = request.method === 'POST' ? passOn(request, response) : discover(response)
    // Whoever waits for the answer sees it missing.
    answering.catch(() => response.destroy())
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return {
    discoveryUrl: url + DISCOVERY,
    hold() {
      ;({ promise: gate, resolve: open } = Promise.withResolvers<void>())
    },
    release: () => open(),
    inHand: () => inHand,
    takeMostInHand() {
      const most = mostInHand
      mostInHand = inHand
      return most
    },
    async [Symbol.asyncDispose]() {
      open()
      server.close()
      server.closeAllConnections()
      await once(server, 'close')
    },
  }
}
