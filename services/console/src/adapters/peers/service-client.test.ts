import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Secret } from '@integration-host/shared/secrets/secret'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { z } from 'zod'
import { createCompanyNames } from './company-names.ts'
import { createIntegrityCheck } from './integrity.ts'
import { createSandboxClient } from './sandbox-client.ts'
import { createServiceClient, type ServiceClient } from './service-client.ts'

describe('the client of a service that sends only the head of its response', () => {
  let opened: AsyncDisposableStack
  let url: string
  let client: ServiceClient

  beforeEach(async () => {
    opened = new AsyncDisposableStack()
    // The deadline of a request passes as soon as the service has sent the head of the response.
    let deadline = new AbortController()
    vi.spyOn(AbortSignal, 'timeout').mockImplementation(() => {
      deadline = new AbortController()
      return deadline.signal
    })
    const fetched = globalThis.fetch
    vi.spyOn(globalThis, 'fetch').mockImplementation(async (...request) => {
      const response = await fetched(...request)
      deadline.abort(new DOMException('The operation timed out', 'TimeoutError'))
      return response
    })
    opened.defer(() => void vi.restoreAllMocks())
    const server = createServer((_, response) => {
      response.writeHead(200, { 'Content-Type': 'application/json' }).flushHeaders()
    }).listen(0, '127.0.0.1')
    await once(server, 'listening')
    opened.defer(async () => {
      server.close()
      server.closeAllConnections()
      await once(server, 'close')
    })
    url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    client = createServiceClient({ name: 'fake', url, key: new Secret('key'), canActFor: false })
  })
  afterEach(() => opened.disposeAsync())

  it('a read fails as it does for a service that does not respond', async () => {
    await expect(client.read('/x', z.unknown())).rejects.toMatchObject({
      name: 'PeerFailed',
      message: 'no response in time',
      status: null,
    })
  })

  it('a request of a person fails with service_unavailable, also one to the sandbox', async () => {
    const failure = { code: 'service_unavailable' }
    await expect(client.send('/x', { person: 'ada' }, z.unknown())).rejects.toMatchObject(failure)
    await expect(createSandboxClient(url).faults()).rejects.toMatchObject(failure)
  })

  it('companies are shown without names, and the integrity check reports that the store cannot be checked', async () => {
    expect(await createCompanyNames(client, Date.now).of(['42'])).toEqual({})
    await expect(createIntegrityCheck(client, Date.now)()).rejects.toMatchObject({
      code: 'store_unavailable',
    })
  })
})
