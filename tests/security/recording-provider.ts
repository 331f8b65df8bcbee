/**
 * Stands in front of the sandbox provider and keeps every secret that goes either way, so that a search
 * knows them all. On request it answers a token call with an error that tells all it knows.
 */
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { buffer } from 'node:stream/consumers'
import { type Canary, canary } from './canaries.ts'

/** What the answer to one token request may tell. */
export interface Told {
  /** As the client sent it. */
  readonly form: string
  readonly refreshToken: string
  readonly authorization: string
  /** As the provider would have answered. */
  readonly accessToken: string
  readonly nextRefreshToken: string
}

export interface Indiscretion {
  readonly status: number
  readonly contentType: string
  readonly body: (told: Told) => string
}

export interface RecordingProvider extends AsyncDisposable {
  readonly url: string
  /** Every secret seen so far, each once. */
  canaries(): readonly Canary[]
  /** Bearer tokens that calls of the accounting API came with. */
  readonly bearers: readonly string[]
  /** Answers the next refreshes of the grant that `code` bought so, one each, after the provider has granted them. */
  tell(code: string, ...indiscretions: readonly Indiscretion[]): void
  /** How many refreshes of that grant are still to be answered so. */
  untold(code: string): number
}

const SECRET_PARAMETERS = ['refresh_token', 'code', 'code_verifier', 'token', 'client_secret']
const SECRET_MEMBERS = ['access_token', 'refresh_token', 'id_token']

/** @param target where the provider really is */
export async function startRecordingProvider(target: string): Promise<RecordingProvider> {
  const seen = new Map<string, Canary>()
  const bearers: string[] = []
  /** Refresh token → the code that its grant began with. */
  const beginnings = new Map<string, string>()
  const waiting = new Map<string, Indiscretion[]>()
  const keep = (kind: string, value: string | null | undefined): void => {
    if (value) seen.set(value, canary(kind, value))
  }

  async function pass(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { authorization = '' } = request.headers
    const body = await buffer(request)
    const form = new URLSearchParams(
      request.headers['content-type']?.startsWith('application/x-www-form-urlencoded')
        ? body.toString()
        : '',
    )
    keep('client authentication', /^Basic (.+)$/.exec(authorization)?.[1])
    const [, bearer] = /^Bearer (.+)$/.exec(authorization) ?? []
    if (bearer !== undefined) {
      bearers.push(bearer)
      keep('access token', bearer)
    }
    for (const name of SECRET_PARAMETERS) keep(`${name} that was sent`, form.get(name))
    if (request.headers['content-type']?.startsWith('application/json')) {
      const document = tokensOf(body.toString())
      for (const name of SECRET_PARAMETERS) keep(`${name} that was sent`, document[name])
    }

    const { host: _, connection: __, ...headers } = request.headers
    const answer = await fetch(target + request.url, {
      method: request.method ?? 'GET',
      redirect: 'manual',
      headers: headers as Record<string, string>,
      ...(body.length > 0 && { body }),
    })
    const text = await answer.text()
    const members = form.has('grant_type') && answer.ok ? tokensOf(text) : {}
    for (const name of SECRET_MEMBERS) keep(`${name} that was issued`, members[name])

    const beginning = form.get('code') ?? beginnings.get(form.get('refresh_token') ?? '') ?? ''
    if (members['refresh_token'] !== undefined) beginnings.set(members['refresh_token'], beginning)
    const indiscretion = form.has('refresh_token') ? waiting.get(beginning)?.shift() : undefined
    if (indiscretion !== undefined) {
      response.writeHead(indiscretion.status, { 'Content-Type': indiscretion.contentType })
      response.end(
        indiscretion.body({
          form: body.toString(),
          authorization,
          refreshToken: form.get('refresh_token') ?? '',
          accessToken: members['access_token'] ?? '',
          nextRefreshToken: members['refresh_token'] ?? '',
        }),
      )
      return
    }
    const passed = [...answer.headers].filter(
      ([name]) => !['connection', 'transfer-encoding', 'content-length'].includes(name),
    )
    response.writeHead(answer.status, Object.fromEntries(passed))
    response.end(text)
  }

  const server = createServer((request, response) => {
    pass(request, response).catch(() => response.destroy())
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    canaries: () => [...seen.values()],
    bearers,
    tell: (code, ...indiscretions) => void waiting.set(code, [...indiscretions]),
    untold: (code) => waiting.get(code)?.length ?? 0,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}

function tokensOf(text: string): Readonly<Record<string, string | undefined>> {
  try {
    const document: unknown = JSON.parse(text)
    return typeof document === 'object' && document !== null ? { ...document } : {}
  } catch {
    return {}
  }
}
