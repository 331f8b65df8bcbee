import {
  DeadLetterPage,
  DeadLetterView,
  DeletedDeadLetters,
} from '@integration-host/shared/contracts/dead-letter'
import { IntegrationError } from '@integration-host/shared/errors'
import { callerOf, needs } from '@integration-host/shared/http/access'
import { onlyKnownQuery } from '@integration-host/shared/http/known-query'
import { jsonResponse, problemResponses, validate } from '@integration-host/shared/http/service-app'
import { type Context, Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import type { ProcessDefinition } from '../process/definition.ts'
import type { Act } from '../transaction/action.ts'
import type { DeadLetter } from '../transaction/dead-letter.ts'
import type { TransactionSource } from '../transaction/transaction-source.ts'
import { deadLetterNotFound, type DeadLetterOperations } from '../worker/dead-letter-operations.ts'
import { ActBody, describeBody, readAct } from './act.ts'
import { ProcessParam, RunResponse } from './contracts.ts'
import { limited } from './limited.ts'
import { CursorParam, type SealedCursors } from './sealed-cursors.ts'
import { readVisible } from './visible-page.ts'

const LetterId = z
  .string()
  .regex(/^[1-9]\d{0,14}$/, 'must be the ID of a dead letter')
  .transform(Number)
const LetterParam = ProcessParam.extend({ id: LetterId })
const LettersQuery = z.object({
  cursor: CursorParam.optional(),
  limit: z
    .string()
    .regex(/^\d{1,3}$/, 'must be a whole number')
    .transform(Number)
    .pipe(z.number().min(1).max(500))
    .default(50),
})

/** The number of bytes of content that a list has of each dead letter. */
const EXCERPT_BYTES = 1_024

export interface DeadLetterRouteDeps {
  readonly source: TransactionSource
  readonly deadLetterOperations: DeadLetterOperations
  readonly processes: ReadonlyMap<string, ProcessDefinition>
  readonly cursors: SealedCursors
}

/**
 * `/processes/{process}/dead-letters`: list, read, requeue, delete. A dead letter that names no run may concern any
 * company, so a key that is bound to realms does not see it.
 */
export function deadLetterRoutes(deps: DeadLetterRouteDeps) {
  const { source, deadLetterOperations, processes, cursors } = deps
  const tags = ['dead letters']

  /** @throws {IntegrationError} `process_not_found` unless the process is loaded, or has runs or dead letters. */
  async function requireKnown(process: string): Promise<void> {
    if (processes.has(process)) return
    if ((await source.deadLetterCounts()).has(process)) return
    if ((await source.storedProcesses()).includes(process)) return
    throw new IntegrationError('process_not_found', 'there is no process of this name')
  }

  /** @throws {IntegrationError} `dead_letter_not_found`, or `forbidden` if the key may not see it. */
  async function letterOf(c: Context, process: string, id: number): Promise<DeadLetter> {
    const letter = await source.deadLetter(process, id)
    if (letter === null) throw deadLetterNotFound()
    const caller = callerOf(c)
    if (letter.isOfTransaction) caller.requireRealmOf(letter)
    else caller.requireEveryRealm()
    return letter
  }

  async function actOf(c: Context): Promise<Act> {
    const { act } = await readAct(c, ActBody)
    if (act.ifVersion !== null)
      throw new IntegrationError('invalid_request', 'a dead letter has no Version for If-Match')
    return act
  }

  const requestBody = describeBody(ActBody)
  return new Hono()
    .use('*', limited)
    .get(
      '/',
      needs('transactions:read'),
      describeRoute({
        tags,
        summary: 'The messages of a process that could not be processed, newest first',
        description:
          'A page may have fewer than `limit`; there are more as long as `next_cursor` is not null.',
        responses: {
          200: jsonResponse('a page', DeadLetterPage),
          ...problemResponses({ 400: 'invalid', 404: 'no such process' }),
        },
      }),
      validate('param', ProcessParam),
      onlyKnownQuery(...Object.keys(LettersQuery.shape)),
      validate('query', LettersQuery),
      async (c) => {
        const { process } = c.req.valid('param')
        const { cursor, limit } = c.req.valid('query')
        const before =
          cursor === undefined ? undefined : cursors.open('dead letters', cursor, z.int())
        await requireKnown(process)
        const caller = callerOf(c)
        const { items, next } = await readVisible(
          (range) => source.deadLetters(process, { ...range, contentBytes: EXCERPT_BYTES }),
          { before, limit },
          (letter) =>
            !caller.isBoundToRealms || (letter.isOfTransaction && caller.mayUse(letter.Realm)),
        )
        return c.json({
          items: items.map(viewOf),
          next_cursor: next === null ? null : cursors.seal('dead letters', next),
        })
      },
    )
    .delete(
      '/',
      needs('transactions:operate'),
      describeRoute({
        tags,
        summary: 'Delete all dead letters of a process',
        requestBody,
        responses: {
          200: jsonResponse('how many were deleted', DeletedDeadLetters),
          ...problemResponses({ 400: 'invalid', 404: 'no such process' }),
        },
      }),
      validate('param', ProcessParam),
      onlyKnownQuery(),
      async (c) => {
        const { process } = c.req.valid('param')
        callerOf(c).requireEveryRealm()
        const act = await actOf(c)
        await requireKnown(process)
        return c.json({ Deleted: await deadLetterOperations.deleteAll(process, act) })
      },
    )
    .get(
      '/:id',
      needs('transactions:read'),
      describeRoute({
        tags,
        summary: 'One dead letter with its content',
        responses: {
          200: jsonResponse('the dead letter', DeadLetterView),
          ...problemResponses({ 400: 'invalid', 404: 'no such dead letter' }),
        },
      }),
      validate('param', LetterParam),
      onlyKnownQuery(),
      async (c) => {
        const { process, id } = c.req.valid('param')
        return c.json(viewOf(await letterOf(c, process, id)))
      },
    )
    .delete(
      '/:id',
      needs('transactions:operate'),
      describeRoute({
        tags,
        summary: 'Delete a dead letter',
        requestBody,
        responses: {
          204: { description: 'deleted' },
          ...problemResponses({ 400: 'invalid', 404: 'no such dead letter' }),
        },
      }),
      validate('param', LetterParam),
      onlyKnownQuery(),
      async (c) => {
        const { process, id } = c.req.valid('param')
        const act = await actOf(c)
        await deadLetterOperations.delete(await letterOf(c, process, id), act)
        return c.body(null, 204)
      },
    )
    .post(
      '/:id/requeue',
      needs('transactions:operate'),
      describeRoute({
        tags,
        summary: 'Publish the due step of its run again, and delete the dead letter',
        requestBody,
        responses: {
          202: jsonResponse('the run', RunResponse),
          ...problemResponses({
            400: 'invalid',
            404: 'no such dead letter, or the process is not loaded',
            409: 'the message names no run that exists, or the run is over',
          }),
        },
      }),
      validate('param', LetterParam),
      onlyKnownQuery(),
      async (c) => {
        const { process, id } = c.req.valid('param')
        const act = await actOf(c)
        const run = await deadLetterOperations.requeue(await letterOf(c, process, id), act)
        return c.json(run, 202)
      },
    )
}

const viewOf = (letter: DeadLetter): DeadLetterView => {
  const { ID, Process, MessageID, Reason, At, TransactionID, ReplayID, StepName } = letter
  const text = textOf(letter)
  return {
    ID,
    Process,
    MessageID,
    Reason,
    At,
    TransactionID,
    ReplayID,
    StepName,
    Content: text ?? letter.Content.toString('base64'),
    Encoding: text === null ? 'base64' : 'text',
    ContentBytes: letter.ContentBytes,
  }
}

/** Returns the content as text, without a character that its end cuts in two; `null` if it is not UTF-8. */
function textOf({ Content, ContentBytes }: DeadLetter): string | null {
  try {
    // `stream` allows an incomplete character at the end.
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(Content, {
      stream: Content.length < ContentBytes,
    })
  } catch {
    return null
  }
}
