import { REDACTED, redactSecrets } from './redact-secrets.ts'

const BODY_LIMIT = 1_000

/**
 * Returns the response body of a token endpoint in a form that may be stored and shown: truncated, and with all current
 * and former tokens redacted. `secrets` are the code, tokens and client secret of the request, which the response may
 * echo. An ordinary error body is returned unchanged.
 */
export function presentableBody(body: string, secrets: readonly string[]): string {
  let shown = redactSecrets(body, secrets)
  for (const secret of secrets.filter((text) => text !== '')) {
    const bytes = Buffer.from(secret)
    const forms = [
      bytes.toString('base64').replace(/={1,2}$/, ''),
      bytes.toString('base64url'),
      bytes.toString('hex'),
    ]
    for (const form of new Set(forms)) shown = shown.replaceAll(form, REDACTED)
  }
  shown = shown
    // Redacts the members of a token response in JSON, a form or XML, even if the response is truncated within a
    // member.
    .replace(new RegExp(`((?:${MEMBERS})\\\\?"\\s*:\\s*\\\\?")[^"\\\\]*`, 'gi'), `$1${REDACTED}`)
    .replace(new RegExp(`((?:${MEMBERS})=)[^&\\s"<]+`, 'gi'), `$1${REDACTED}`)
    .replace(new RegExp(`(<(?:${MEMBERS})[^<>]*>)[^<]*`, 'gi'), `$1${REDACTED}`)
    // Redacts the credentials of an echoed request, and all JSON web tokens.
    .replace(/\b(Basic|Bearer)\s+[\w+/=.~%-]{16,}/gi, `$1 ${REDACTED}`)
    .replace(/eyJ[\w-]{8,}(?:\.[\w-]*){0,4}/g, REDACTED)
    // Any other text of at least 40 characters could be a token, under any name and in any encoding. UUIDs are shorter,
    // so they are not redacted.
    .replace(/(?<![\w~+-])[\w~+-]{40,}/g, REDACTED)
  return shown.length > BODY_LIMIT ? `${shown.slice(0, BODY_LIMIT)}…` : shown
}

const MEMBERS = 'access_?token|refresh_?token|id_?token|client_?secret'
