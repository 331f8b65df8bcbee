/** Functions with which tests call the gateway without any change to the request or the response. */
import { once } from 'node:events'
import { type ClientRequest, type IncomingMessage, request as httpRequest } from 'node:http'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { expect } from 'vitest'
import { KEY } from './fake-servers.ts'

/** The header line with the service key, for requests that a test writes as raw bytes. */
export const AUTH = `Authorization: Bearer ${KEY}\r\n`
/** The path of a call that the gateway forwards, for realm 1. Every fixture has a credential for this realm. */
export const PATH = '/v3/company/1/x'

/** Sends a call with Node's HTTP client, which does not change the response. */
export function send(
  port: number,
  method: string,
  path: string,
  headers: Readonly<Record<string, string>> = {},
): { readonly request: ClientRequest; readonly answer: Promise<IncomingMessage> } {
  const authorization = `Bearer ${KEY}`
  const request = httpRequest({ port, path, method, headers: { authorization, ...headers } })
  const answer = once(request, 'response').then(([response]) => response as IncomingMessage)
  return { request, answer }
}

/** Waits until all buffers are full, so that the number of written bytes no longer grows. Resolves with this number. */
export async function stalled(written: () => number): Promise<number> {
  let before = -1
  await eventually(
    () => {
      const now = written()
      const isStalled = now === before
      before = now
      expect(isStalled).toBe(true)
    },
    { everyMs: 500 },
  )
  return before
}
