import { QueueTransaction } from '@integration-host/shared/contracts/transaction'
import { IntegrationError } from '@integration-host/shared/errors'
import { callerOf, needs } from '@integration-host/shared/http/access'
import { onlyKnownQuery } from '@integration-host/shared/http/known-query'
import {
  jsonResponse,
  linesBody,
  problemResponses,
  validate,
} from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { parseClientJson } from '../process/json-normalization.ts'
import { checkedQueueable, MAX_TRANSACTION_BYTES, utf8Of } from '../transaction/queueable.ts'
import type { Operations } from '../worker/operations.ts'
import { queuerOf } from './act.ts'
import { BulkResponse, MAX_BULK_LINES, ProcessParam } from './contracts.ts'

type Line =
  | { readonly transaction: QueueTransaction }
  | { readonly id: string | null; readonly errors: readonly string[] }

/**
 * `POST …/transactions/bulk` queues the transactions of an NDJSON body or a JSON array. The response has one result per
 * transaction. Valid transactions are queued even if others are invalid.
 */
export function bulkRoutes({ operations }: { readonly operations: Operations }) {
  return new Hono().post(
    '/bulk',
    needs('transactions:queue'),
    describeRoute({
      operationId: 'queueTransactions',
      tags: ['transactions'],
      summary: `Queue up to ${MAX_BULK_LINES} transactions (application/x-ndjson or a JSON array)`,
      requestBody: linesBody(QueueTransaction),
      responses: {
        200: jsonResponse('one result per line', BulkResponse),
        ...problemResponses({
          400: 'no lines, or too many',
          404: 'no such process',
          409: 'the process is built in',
          413: 'too large',
          415: 'neither NDJSON nor JSON',
          503: 'the store is unavailable, or did not respond in time; a part of the transactions may be stored, and their runs may have started; repeat the request',
        }),
      },
    }),
    validate('param', ProcessParam),
    onlyKnownQuery(),
    async (c) => {
      const { process } = c.req.valid('param')
      operations.process(process)
      const type = c.req.header('Content-Type')?.split(';')[0]?.trim().toLowerCase()
      const caller = callerOf(c)
      const lines = linesOf(type, utf8Of(await c.req.arrayBuffer())).map((line): Line =>
        'transaction' in line && !caller.mayUse(line.transaction.Realm)
          ? { id: line.transaction.TransactionID, errors: ['Realm: the key may not use it'] }
          : line,
      )
      const good = lines.flatMap((line) => ('transaction' in line ? [line.transaction] : []))
      const queued = (await operations.queue(process, good, queuerOf(c, good))).values()
      const results = lines.map((line, index): BulkResponse['results'][number] => {
        if (!('transaction' in line))
          return {
            line: index + 1,
            TransactionID: line.id,
            outcome: 'invalid',
            code: 'invalid_request',
            errors: [...line.errors],
          }
        const { TransactionID } = line.transaction
        const result = queued.next().value
        const outcome = result?.outcome ?? 'conflict'
        return {
          line: index + 1,
          TransactionID,
          outcome,
          ...(outcome === 'conflict' && { code: 'transaction_conflict' }),
          ...(result?.outcome === 'invalid' && {
            code: 'input_invalid',
            errors: [...result.errors],
          }),
        }
      })
      const count = (wanted: string) => results.filter(({ outcome }) => outcome === wanted).length
      return c.json({
        queued: count('queued'),
        absorbed: count('absorbed'),
        exists: count('exists'),
        conflicts: count('conflict'),
        invalid: count('invalid'),
        results,
      } satisfies BulkResponse)
    },
  )
}

/** @throws {IntegrationError} if the body as a whole is invalid. */
function linesOf(type: string | undefined, text: string): Line[] {
  const lines =
    type === 'application/x-ndjson'
      ? ndjsonLines(text)
      : type === 'application/json'
        ? arrayOf(text).map(lineOf)
        : null
  if (lines === null)
    throw new IntegrationError(
      'unsupported_media_type',
      'send application/x-ndjson or application/json',
    )
  if (lines.length === 0 || lines.length > MAX_BULK_LINES)
    throw new IntegrationError('invalid_request', `send 1 to ${MAX_BULK_LINES} transactions`)
  return lines
}

// A line from its first character that is not white space. Lines of white space are skipped.
const NDJSON_LINE = /\S[^\n]*/g

/** Returns the lines of the text up to the first one that is too many. */
function ndjsonLines(text: string): Line[] {
  const lines: Line[] = []
  for (const [line] of text.matchAll(NDJSON_LINE)) {
    // The size is checked before parsing, so that a large line is never parsed.
    lines.push(isTooLarge(line) ? { id: null, errors: [TOO_LARGE] } : lineOf(parseClientJson(line)))
    if (lines.length > MAX_BULK_LINES) break
  }
  return lines
}

function arrayOf(text: string): unknown[] {
  const value = parseClientJson(text)
  if (!Array.isArray(value))
    throw new IntegrationError('invalid_request', 'the body must be an array of transactions')
  return value as unknown[]
}

function lineOf(value: unknown): Line {
  const checked = checkedQueueable(value, 'line')
  const isLarge = 'transaction' in checked && isTooLarge(JSON.stringify(value))
  const errors = 'problems' in checked ? checked.problems : isLarge ? [TOO_LARGE] : []
  if ('transaction' in checked && errors.length === 0) return checked
  const id = (value as { TransactionID?: unknown } | null | undefined)?.TransactionID
  return { id: typeof id === 'string' ? id.slice(0, 128) : null, errors }
}

const TOO_LARGE = `line: may have at most ${MAX_TRANSACTION_BYTES} bytes`
const isTooLarge = (json: string): boolean => Buffer.byteLength(json) > MAX_TRANSACTION_BYTES
