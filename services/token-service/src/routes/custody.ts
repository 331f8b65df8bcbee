import { type Context, Hono } from 'hono'
import { describeRoute, resolver } from 'hono-openapi'
import { stream } from 'hono/streaming'
import { z } from 'zod'
import {
  ExportDocument,
  ExportRequest,
  ImportReport,
  ImportRequest,
  KeyCheckPage,
  KeyRotationProgress,
} from '@integration-host/shared/contracts/custody'
import { CredentialName, realmOf } from '@integration-host/shared/contracts/realm'
import { Secret } from '@integration-host/shared/secrets/secret'
import { callerOf, needs, requireRealm } from '@integration-host/shared/http/request'
import {
  knownQuery,
  problems,
  responses,
  validate,
} from '@integration-host/shared/http/service-app'
import type { DocumentSecret } from '../credential/export-document.ts'
import { requireJson, wholeNumber } from './request.ts'
import type { RouteDeps } from './route-deps.ts'

const KeyCheckQuery = z.object({
  cursor: CredentialName.optional(),
  limit: wholeNumber(1, 500).optional(),
})

/**
 * The size limit of an import body. It is sufficient for 500 credentials, the most of one export, with the longest tokens
 * that are stored. What was exported is no longer refreshed, so a document must never be too large to be imported.
 */
export const MAX_IMPORT_BYTES = 32 * 1_048_576

/** The routes for operators: export and import, key rotation and key check. */
export function custodyRoutes(deps: RouteDeps): Hono {
  const { store, transfers, takeActions } = deps
  const tags = ['custody']
  return new Hono()
    .post(
      '/exports',
      needs('custody:transfer'),
      describeRoute({
        operationId: 'exportCredentials',
        tags,
        summary:
          'Exports credentials, encrypted with a passphrase or key; they are no longer refreshed here',
        responses: responses(ExportDocument, 'credential_not_found', 'daily_actions_used'),
      }),
      requireJson,
      validate('json', ExportRequest),
      async (c) => {
        const { Names, ...secret } = c.req.valid('json')
        for (const name of Names) requireRealm(c, realmOf(name))
        await takeActions(callerOf(c).keyId, Names.length)
        noStore(c)
        return c.json(
          await transfers.exportCredentials(Names, documentSecret(secret), callerOf(c).name),
        )
      },
    )
    .post(
      '/imports',
      needs('custody:transfer'),
      describeRoute({
        operationId: 'importCredentials',
        tags,
        summary: 'Imports exported credentials',
        responses: responses(ImportReport, 'daily_actions_used'),
      }),
      requireJson,
      validate('json', ImportRequest),
      async (c) => {
        const { Document, Overwrite: overwrite, ...secret } = c.req.valid('json')
        callerOf(c).requireEveryRealm() // The realms of the document are unknown until it is decrypted.
        await takeActions(callerOf(c).keyId, Document.Names.length)
        const options = { overwrite, who: callerOf(c).name }
        return c.json(await transfers.importCredentials(Document, documentSecret(secret), options))
      },
    )
    .post(
      '/key-rotations',
      needs('custody:transfer'),
      describeRoute({
        operationId: 'rotateKeys',
        tags,
        summary:
          'Re-encrypts every credential with the first of CREDENTIAL_KEYS, and streams its progress',
        responses: {
          200: {
            description: 'one line of JSON for each few hundred credentials',
            content: { 'application/x-ndjson': { schema: resolver(KeyRotationProgress) } },
          },
          ...problems('daily_actions_used'),
        },
      }),
      async (c) => {
        const caller = callerOf(c)
        caller.requireEveryRealm()
        await takeActions(caller.keyId, 1)
        const lines = deps.rotateKeys(
          caller.name,
          AbortSignal.any([deps.shutdown, c.req.raw.signal]),
        )
        // The first line is computed before the response head is sent, so that an unavailable store can still be
        // reported by the status.
        let line = await lines.next()
        c.header('Content-Type', 'application/x-ndjson')
        const write = async (out: { write(text: string): Promise<unknown> }): Promise<void> => {
          for (; line.done !== true; line = await lines.next())
            await out.write(`${JSON.stringify(line.value)}\n`)
        }
        // The response head with status 200 was already sent when this error occurred. The caller detects the failure
        // because the last line (IsFinished) is missing.
        return stream(c, write, async (error) =>
          deps.logger.warn({ err: error }, 'key rotation aborted'),
        )
      },
    )
    .get(
      '/key-check',
      needs('credentials:read'),
      describeRoute({
        operationId: 'checkKeys',
        tags,
        summary:
          'Whether the secrets of credentials can be decrypted with CREDENTIAL_KEYS; read-only',
        responses: responses(KeyCheckPage),
      }),
      knownQuery(KeyCheckQuery),
      async (c) => {
        callerOf(c).requireEveryRealm()
        const { cursor = '', limit = 500 } = c.req.valid('query')
        const names = (await store.list({ after: cursor, limit: limit + 1 })).map(
          ({ name }) => name,
        )
        const checked = names.slice(0, limit)
        const results = await Promise.all(checked.map((name) => store.checkDecryption(name)))
        return c.json({
          Checked: checked.length,
          Refused: checked.filter((_, index) => results[index] === 'refused'),
          next_cursor: names.length > limit ? (checked.at(-1) ?? null) : null,
        } satisfies KeyCheckPage)
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
