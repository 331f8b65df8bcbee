import { type Context, Hono } from 'hono'
import { describeRoute, resolver } from 'hono-openapi'
import { stream } from 'hono/streaming'
import { z } from 'zod'
import { AuditPage } from '@integration-host/shared/contracts/audit'
import {
  ExportDocument,
  ExportRequest,
  ImportReport,
  ImportRequest,
  KeyCheckPage,
  KeyRotationProgress,
} from '@integration-host/shared/contracts/custody'
import { CredentialName } from '@integration-host/shared/contracts/realm'
import type { Logger } from '@integration-host/shared/observability/logger'
import { Secret } from '@integration-host/shared/secrets/secret'
import { onlyKnownQuery } from '@integration-host/shared/http/known-query'
import { jsonResponse, problemResponses, validate } from '@integration-host/shared/http/service-app'
import type { CredentialStore } from '../credential/credential-store.ts'
import type { DocumentSecret } from '../credential/export-document.ts'
import type { RotateKeys } from '../credential/key-rotation.ts'
import type { Transfers } from '../credential/transfer.ts'
import { callerOf } from './caller.ts'
import { requireJson } from './json-body.ts'
import { wholeNumber } from './whole-number.ts'

const AuditQuery = z.object({
  after: wholeNumber(0, Number.MAX_SAFE_INTEGER).optional(),
  limit: wholeNumber(1, 1_000).optional(),
})

const KeyCheckQuery = z.object({
  cursor: CredentialName.optional(),
  limit: wholeNumber(1, 500).optional(),
})

/** An import of as many credentials as one export may hold. */
export const MAX_IMPORT_BYTES = 32 * 1_048_576

export interface CustodyRoutesDeps {
  readonly logger: Pick<Logger, 'warn'>
  readonly transfers: Transfers
  readonly rotateKeys: RotateKeys
  readonly auditLog: Pick<CredentialStore, 'readAudit'>
  readonly keyCheck: Pick<CredentialStore, 'list' | 'opens'>
  /** Aborted when the service leaves. */
  readonly leaving: AbortSignal
}

/** What an operator does with credentials as a whole: move them, re-encrypt them, and see who did what. */
export function custodyRoutes({
  logger,
  transfers,
  rotateKeys,
  auditLog,
  keyCheck,
  leaving,
}: CustodyRoutesDeps): Hono {
  const tags = ['custody']
  return new Hono()
    .post(
      '/exports',
      describeRoute({
        tags,
        summary:
          'Hands credentials over: sealed to a passphrase or key, and no longer refreshed here',
        responses: {
          200: jsonResponse('the sealed credentials', ExportDocument),
          ...problemResponses({
            400: 'bad body',
            404: 'no such credential; nothing was exported',
            415: 'not application/json',
            503: 'the store is not available, or a refresh is in doubt; ask again',
          }),
        },
      }),
      requireJson,
      validate('json', ExportRequest),
      async (c) => {
        const { Names, ...secret } = c.req.valid('json')
        noStore(c)
        return c.json(await transfers.exportCredentials(Names, documentSecret(secret), callerOf(c)))
      },
    )
    .post(
      '/imports',
      describeRoute({
        tags,
        summary: 'Takes over exported credentials',
        responses: {
          200: jsonResponse('what was imported, and what was not', ImportReport),
          ...problemResponses({
            400: 'bad body, or a document that does not open',
            415: 'not application/json',
            503: 'the store is not available; ask again',
          }),
        },
      }),
      requireJson,
      validate('json', ImportRequest),
      async (c) => {
        const { Document, Overwrite: overwrite, ...secret } = c.req.valid('json')
        const options = { overwrite, who: callerOf(c) }
        return c.json(await transfers.importCredentials(Document, documentSecret(secret), options))
      },
    )
    .post(
      '/key-rotations',
      describeRoute({
        tags,
        summary: 'Seals every credential with the first of CREDENTIAL_KEYS, and tells its progress',
        responses: {
          200: {
            description: 'one line of JSON for each few hundred credentials',
            content: { 'application/x-ndjson': { schema: resolver(KeyRotationProgress) } },
          },
          ...problemResponses({ 503: 'the store is not available' }),
        },
      }),
      async (c) => {
        const lines = rotateKeys(callerOf(c), AbortSignal.any([leaving, c.req.raw.signal]))
        // The first line before the head of the answer: a store that is away is told as a problem.
        let line = await lines.next()
        c.header('Content-Type', 'application/x-ndjson')
        const write = async (out: { write(text: string): Promise<unknown> }): Promise<void> => {
          for (; line.done !== true; line = await lines.next())
            await out.write(`${JSON.stringify(line.value)}\n`)
        }
        // The caller sees an answer without its last line.
        return stream(c, write, async (error) =>
          logger.warn({ err: error }, 'key rotation cut short'),
        )
      },
    )
    .get(
      '/key-check',
      describeRoute({
        tags,
        summary: 'Whether the secrets of credentials open with CREDENTIAL_KEYS; nothing is written',
        responses: {
          200: jsonResponse('one page', KeyCheckPage),
          ...problemResponses({
            400: 'bad cursor or limit, or an unknown query parameter',
            503: 'the store is not available',
          }),
        },
      }),
      onlyKnownQuery(...Object.keys(KeyCheckQuery.shape)),
      validate('query', KeyCheckQuery),
      async (c) => {
        const { cursor = '', limit = 500 } = c.req.valid('query')
        const names = (await keyCheck.list({ after: cursor, limit: limit + 1 })).map(
          ({ name }) => name,
        )
        const looked = names.slice(0, limit)
        const found = await Promise.all(looked.map((name) => keyCheck.opens(name)))
        return c.json({
          Checked: looked.length,
          Refused: looked.filter((_, index) => found[index] === 'refused'),
          next_cursor: names.length > limit ? (looked.at(-1) ?? null) : null,
        } satisfies KeyCheckPage)
      },
    )
    .get(
      '/audit',
      describeRoute({
        tags,
        summary: 'The audit log in order, from the entry after `after` on',
        responses: {
          200: jsonResponse('one page', AuditPage),
          ...problemResponses({
            400: 'bad after or limit, or an unknown query parameter',
            503: 'the store is not available',
          }),
        },
      }),
      onlyKnownQuery(...Object.keys(AuditQuery.shape)),
      validate('query', AuditQuery),
      async (c) => {
        const { after = 0, limit = 100 } = c.req.valid('query')
        const { items, head } = await auditLog.readAudit(after, limit)
        return c.json({ items: [...items], head } satisfies AuditPage)
      },
    )
}

const documentSecret = ({
  Passphrase,
  Key,
}: {
  readonly Passphrase?: string | undefined
  readonly Key?: string | undefined
}): DocumentSecret =>
  Key === undefined
    ? { kind: 'passphrase', passphrase: new Secret(Passphrase ?? '') }
    : { kind: 'key', key: Buffer.from(Key, 'base64') }

function noStore(c: Context): void {
  c.header('Cache-Control', 'no-store')
  c.header('Pragma', 'no-cache')
}
