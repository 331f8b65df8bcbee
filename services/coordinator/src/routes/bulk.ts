import { setImmediate } from 'node:timers/promises'
import { QueueTransaction } from '@integration-host/shared/contracts/transaction'
import { IntegrationError } from '@integration-host/shared/errors'
import { callerOf, needs, onlyKnownQuery } from '@integration-host/shared/http/request'
import { linesBody, responses, validate } from '@integration-host/shared/http/service-app'
import { arrayElements, jsonExcess } from '@integration-host/shared/json'
import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { parseClientJson } from '../run/json-normalization.ts'
import { checkedQueueable, MAX_TRANSACTION_BYTES, utf8Of } from '../run/queueable.ts'
import { type RunActions, tooManyDelayedRuns } from '../worker/run-actions.ts'
import { queuerOf } from './act.ts'
import { BulkResponse, MAX_BULK_LINES, ProcessParam } from './contracts.ts'

type Line =
  | { readonly transaction: QueueTransaction }
  | { readonly id: string | null; readonly errors: readonly string[] }

/**
 * `POST …/transactions/bulk` queues the transactions of an NDJSON body or a JSON array. The response has one result per
 * transaction. Valid transactions are queued even if others are invalid.
 */
export function bulkRoutes({ runActions }: { readonly runActions: RunActions }) {
  return new Hono().post(
    '/bulk',
    needs('transactions:queue'),
    describeRoute({
      operationId: 'queueTransactions',
      tags: ['transactions'],
      summary: `Queue up to ${MAX_BULK_LINES} transactions (application/x-ndjson or a JSON array)`,
      requestBody: linesBody(QueueTransaction),
      description:
        'After 503, a part of the transactions may be stored, and their runs may have started: repeat the request.',
      responses: responses(
        BulkResponse,
        'process_not_found',
        'process_built_in',
        'unsupported_media_type',
      ),
    }),
    validate('param', ProcessParam),
    onlyKnownQuery(),
    async (c) => {
      const { process } = c.req.valid('param')
      runActions.process(process)
      const type = c.req.header('Content-Type')?.split(';')[0]?.trim().toLowerCase()
      const caller = callerOf(c)
      const read = await linesOf(type, utf8Of(await c.req.arrayBuffer()))
      const lines = read.map((line): Line =>
        'transaction' in line && !caller.mayUse(line.transaction.Realm)
          ? { id: line.transaction.TransactionID, errors: ['Realm: the key may not use it'] }
          : line,
      )
      const good = lines.flatMap((line) => ('transaction' in line ? [line.transaction] : []))
      const queued = (await runActions.queue(process, good, queuerOf(c, good))).values()
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
        if (result?.outcome === 'limited') {
          const { code, message } = tooManyDelayedRuns()
          return { line: index + 1, TransactionID, outcome: 'invalid', code, errors: [message] }
        }
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

/**
 * Reads the lines of the body, up to the first one that is too many. Other requests are served between groups of lines,
 * because parsing all of a body takes seconds.
 *
 * @throws {IntegrationError} if the body as a whole is invalid.
 */
async function linesOf(type: string | undefined, text: string): Promise<Line[]> {
  const isArray = type === 'application/json'
  if (!isArray && type !== 'application/x-ndjson')
    throw new IntegrationError(
      'unsupported_media_type',
      'send application/x-ndjson or application/json',
    )
  const lines: Line[] = []
  let unyielded = 0
  for (const line of isArray ? arrayElements(text) : ndjsonLines(text)) {
    unyielded += line.length
    if (unyielded > YIELD_AFTER) {
      unyielded = 0
      await setImmediate()
    }
    lines.push(lineOf(line, isArray))
    if (lines.length > MAX_BULK_LINES) break
  }
  if (lines.length === 0 || lines.length > MAX_BULK_LINES)
    throw new IntegrationError('invalid_request', `send 1 to ${MAX_BULK_LINES} transactions`)
  return lines
}

/** The number of characters of lines that are parsed before other requests are served. */
const YIELD_AFTER = 65_536

// A line from its first character that is not white space of JSON. Lines of white space are skipped.
const NDJSON_LINE = /[^ \t\r\n][^\n]*/g

function* ndjsonLines(text: string): Generator<string> {
  for (const [line] of text.matchAll(NDJSON_LINE)) yield line
}

/**
 * Checks the size of a line before it is parsed, and reports the limit of JSON that it exceeds.
 *
 * @throws {IntegrationError} if an element of an array is not JSON, because the whole body then is not an array.
 */
function lineOf(text: string, isElement: boolean): Line {
  if (Buffer.byteLength(text) > MAX_TRANSACTION_BYTES) return { id: null, errors: [TOO_LARGE] }
  const value = parseClientJson(text)
  const excess = value === undefined ? jsonExcess(text) : null
  if (excess !== null) return { id: null, errors: [`line: ${excess}`] }
  if (isElement && value === undefined)
    throw new IntegrationError('invalid_request', 'the body must be an array of transactions')
  const checked = checkedQueueable(value, 'line')
  if ('transaction' in checked) return checked
  const id = (value as { TransactionID?: unknown } | null | undefined)?.TransactionID
  return { id: typeof id === 'string' ? id.slice(0, 128) : null, errors: checked.problems }
}

const TOO_LARGE = `line: may have at most ${MAX_TRANSACTION_BYTES} bytes`
