import type { Context } from 'hono'
import type { Counters } from '../control/counters.ts'
import type { Client } from '../provider.ts'

/**
 * Returns whether an `Authorization` header is HTTP Basic with the client's id and secret. A client form-encodes the id
 * and the secret before it joins them with a colon (RFC 6749 §2.3.1).
 */
export function isClient(header: string | undefined, client: Client): boolean {
  const encoded = /^Basic {1,64}([A-Za-z0-9+/]{1,4096}={0,2})$/i.exec(header ?? '')?.[1]
  if (encoded === undefined) return false
  const pair = Buffer.from(encoded, 'base64').toString('utf8')
  const end = pair.indexOf(':')
  if (end === -1) return false
  const id = formDecoded(pair.slice(0, end))
  const secret = formDecoded(pair.slice(end + 1))
  return id === client.id && secret !== null && client.secret.equals(secret)
}

function formDecoded(text: string): string | null {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '))
  } catch {
    return null
  }
}

/** Returns whether a form contains the client's id and secret (`client_secret_post`). */
export const isClientOfForm = (form: ReadonlyMap<string, string> | null, client: Client): boolean =>
  form?.get('client_id') === client.id && client.secret.equals(form.get('client_secret') ?? '')

/** Responds 401 with `invalid_client` and the challenge that RFC 6749 §5.2 requires. */
export function clientRejected(c: Context, counters: Counters): Response {
  counters.clientRejected()
  c.header('WWW-Authenticate', 'Basic realm="sandbox-provider"')
  return c.json({ error: 'invalid_client' }, 401)
}

/** Returns the fields of a form body; `null` if the body is not a form or repeats a field (RFC 6749 §3.2). */
export async function readForm(c: Context): Promise<ReadonlyMap<string, string> | null> {
  if (mediaType(c) !== 'application/x-www-form-urlencoded') return null
  const fields = [...new URLSearchParams(await c.req.text())]
  const form = new Map(fields)
  return form.size === fields.length ? form : null
}

/**
 * Returns the media type of a request body without its parameters: `application/json` for `Application/JSON;
 * charset=utf-8`.
 */
export const mediaType = (c: Context): string =>
  (c.req.header('Content-Type') ?? '').split(';')[0]?.trim().toLowerCase() ?? ''

/** Returns the token of `Authorization: Bearer …` (RFC 6750 §2.1). */
export const bearerToken = (c: Context): string | null =>
  /^Bearer {1,64}([\x21-\x7e]{1,4096})$/i.exec(c.req.header('Authorization') ?? '')?.[1] ?? null
