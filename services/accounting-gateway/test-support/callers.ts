/** Ways to call the gateway that change neither the request nor the response. */
import { once } from 'node:events'
import { type ClientRequest, type IncomingMessage, request as httpRequest } from 'node:http'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { expect } from 'vitest'
import { KEY } from './fake-servers.ts'

/** The key as a header line of a raw request. */
export const AUTH = `Authorization: Bearer ${KEY}\r\n`
/** A company call for a realm that every fixture knows. */
export const PATH = '/v3/company/1/x'

/** Makes a call with Node's own client, which does not change the response. */
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

/** Resolves with the bytes written once that number no longer grows, because all buffers are full. */
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
