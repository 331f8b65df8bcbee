import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Secret } from '@integration-host/shared/secrets/secret'
import { afterEach, describe, expect, it } from 'vitest'
import { createConnectedCompanies } from './connected-companies.ts'

const KEY = 'the-service-key-of-this-test-0123456789'
const stacks: AsyncDisposableStack[] = []
afterEach(async () => {
  await stacks.pop()?.disposeAsync()
})

/** Starts a fake token-service that responds with `respond`. Returns a list of companies that reads from it. */
async function companiesFrom(
  respond: (request: IncomingMessage, response: ServerResponse) => void,
  options: { readonly timeoutMs?: number; readonly pageSize?: number } = {},
) {
  const server = createServer(respond).listen(0, '127.0.0.1')
  const stack = new AsyncDisposableStack()
  stack.defer(() => {
    server.closeAllConnections()
    server.close()
  })
  stacks.push(stack)
  await once(server, 'listening')
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return createConnectedCompanies({ url, key: new Secret(KEY), ...options })
}

const json = (response: ServerResponse, status: number, body: unknown): void => {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body))
}

describe('the list of connected companies', () => {
  it('the list of connected companies contains all pages of companies with a usable credential', async () => {
    const requests: string[] = []
    const companies = await companiesFrom(
      (request, response) => {
        requests.push(`${request.headers.authorization} ${request.url}`)
        const isFirst = !request.url?.includes('cursor')
        json(response, 200, {
          items: [{ Name: isFirst ? 'ACC-1001' : 'ACC-1002', State: 'active', Tags: {} }],
          next_cursor: isFirst ? 'ACC-1001' : null,
        })
      },
      { pageSize: 1 },
    )
    const first = await companies.page(null)
    expect(first).toEqual({ realms: ['1001'], next: 'ACC-1001' })
    expect(await companies.page(first.next)).toEqual({ realms: ['1002'], next: null })
    expect(requests).toEqual([
      `Bearer ${KEY} /credentials?state=active%2Cexpiring%2Cfailing&limit=1`,
      `Bearer ${KEY} /credentials?state=active%2Cexpiring%2Cfailing&limit=1&cursor=ACC-1001`,
    ])
  })

  it('isConnected() distinguishes a company that is not connected from an unavailable token-service', async () => {
    const companies = await companiesFrom((request, response) => {
      const status =
        request.url === '/credentials/ACC-1001'
          ? 200
          : request.url === '/credentials/ACC-1002'
            ? 404
            : 503
      json(response, status, {})
    })
    expect(await companies.isConnected('1001')).toBe(true)
    expect(await companies.isConnected('1002')).toBe(false)
    await expect(companies.isConnected('1003')).rejects.toMatchObject({
      code: 'token_service_unavailable',
    })
  })

  it.each([
    ['status 401', 401, {}, 'does not accept the service key'],
    ['status 403', 403, {}, 'does not accept the service key'],
    ['status 500', 500, {}, 'status 500'],
    ['a body that is not a page', 200, { items: 'none' }, 'invalid response'],
    [
      'a name that is not a credential',
      200,
      { items: [{ Name: '1001' }], next_cursor: null },
      'invalid response',
    ],
    ['the cursor of the request', 200, { items: [], next_cursor: 'ACC-9' }, 'invalid response'],
  ])(
    'the list of connected companies reports %s as token_service_unavailable',
    async (_what, status, body, message) => {
      const companies = await companiesFrom((_request, response) => json(response, status, body))
      const page = companies.page('ACC-9')
      await expect(page).rejects.toMatchObject({ code: 'token_service_unavailable' })
      await expect(page).rejects.toThrow(message)
      await expect(page).rejects.not.toThrow(KEY)
    },
  )

  it('if token-service does not respond in time, the list of connected companies fails with token_service_unavailable', async () => {
    const companies = await companiesFrom(() => {}, { timeoutMs: 20 })
    await expect(companies.page(null)).rejects.toMatchObject({ code: 'token_service_unavailable' })
  })
})
