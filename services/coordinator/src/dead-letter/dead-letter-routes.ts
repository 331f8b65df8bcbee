import {
  DeadLetterPage,
  DeadLetterView,
  DeletedDeadLetters,
} from '@integration-host/shared/contracts/operations'
import { hasCode, IntegrationError } from '@integration-host/shared/errors'
import { callerOf, needs, onlyKnownQuery } from '@integration-host/shared/http/request'
import { knownQuery, responses, validate } from '@integration-host/shared/http/service-app'
import { type Context, Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import { deadLetterNotFound } from './dead-letter-operations.ts'
import { type DeadLetter, namedBy } from './dead-letter-store.ts'
import { action, ChangedRun, changedRun } from '../routes/act.ts'
import { pageLimit, ProcessParam } from '../routes/contracts.ts'
import { CursorParam } from '../routes/sealed-cursors.ts'
import { readVisible } from '../routes/visible-page.ts'
import type { AppDeps } from '../core.ts'

const LetterId = z
  .string()
  .regex(/^[1-9]\d{0,14}$/, 'must be the ID of a dead letter')
  .transform(Number)
const LetterParam = ProcessParam.extend({ id: LetterId })
const LettersQuery = z.object({
  cursor: CursorParam.optional(),
  limit: pageLimit(500),
})

/** The maximum number of content bytes of each dead letter in a list. */
const EXCERPT_BYTES = 1_024

/**
 * `/processes/{process}/dead-letters`: lists, reads, requeues and deletes dead letters. A dead letter that names no run
 * may concern any company, so it is hidden from keys that are bound to realms.
 */
export function deadLetterRoutes(deps: AppDeps) {
  const { deadLetterStore, runActions, deadLetterOperations, cursors, recordRead } = deps
  const tags = ['dead letters']

  /** @throws {IntegrationError} `dead_letter_not_found`, or `forbidden` if the key may not read the dead letter. */
  async function letterOf(c: Context, process: string, id: number): Promise<DeadLetter> {
    const letter = await deadLetterStore.find(process, id)
    if (letter === null) throw deadLetterNotFound()
    const caller = callerOf(c)
    if (letter.isOfTransaction) caller.requireRealmOf(letter)
    else caller.requireEveryRealm()
    return letter
  }

  const onLetter = {
    tags,
    param: LetterParam,
    unversioned: 'a dead letter',
  }
  return new Hono()
    .get(
      '/',
      needs('transactions:read'),
      describeRoute({
        operationId: 'listDeadLetters',
        tags,
        summary: 'The messages of a process that could not be processed, newest first',
        description:
          'A page may have fewer than `limit`; there are more as long as `next_cursor` is not null.',
        responses: responses(DeadLetterPage, 'process_not_found'),
      }),
      validate('param', ProcessParam),
      knownQuery(LettersQuery),
      async (c) => {
        const { process } = c.req.valid('param')
        const { cursor, limit } = c.req.valid('query')
        const before =
          cursor === undefined ? undefined : cursors.open('dead letters', cursor, z.int())
        await runActions.requireKnown(process)
        const caller = callerOf(c)
        const { items, next } = await readVisible(
          (range) => deadLetterStore.list(process, { ...range, contentBytes: EXCERPT_BYTES }),
          { before, limit },
          (letter) =>
            !caller.isBoundToRealms || (letter.isOfTransaction && caller.mayUse(letter.Realm)),
          ({ ID }) => ID,
        )
        if (items.length > 0) {
          const filter = before === undefined ? null : `before=${before}`
          await recordRead(caller, { kind: 'read_dead_letters', process, filter })
        }
        return c.json({
          items: items.map(viewOf),
          next_cursor: next === null ? null : cursors.seal('dead letters', next),
        })
      },
    )
    .delete(
      '/',
      ...action({
        ...onLetter,
        operationId: 'deleteDeadLetters',
        summary: 'Delete all dead letters of a process',
        param: ProcessParam,
        concernsEveryRealm: true,
        success: DeletedDeadLetters,
        problems: ['process_not_found'],
        async apply({ c, param: { process }, act }) {
          await runActions.requireKnown(process)
          return c.json({ Deleted: await deadLetterOperations.deleteAll(process, act) })
        },
      }),
    )
    .get(
      '/:id',
      needs('transactions:read'),
      describeRoute({
        operationId: 'getDeadLetter',
        tags,
        summary: 'One dead letter with its content',
        responses: responses(DeadLetterView, 'dead_letter_not_found'),
      }),
      validate('param', LetterParam),
      onlyKnownQuery(),
      async (c) => {
        const { process, id } = c.req.valid('param')
        const letter = await letterOf(c, process, id)
        const { TransactionID: transactionId, ReplayID: replayId } = namedBy(letter)
        const read = { process, transactionId, replayId, filter: `dead letter ${id}` }
        await recordRead(callerOf(c), { kind: 'read_dead_letter', ...read })
        return c.json(viewOf(letter))
      },
    )
    .delete(
      '/:id',
      ...action({
        ...onLetter,
        operationId: 'deleteDeadLetter',
        summary: 'Delete a dead letter',
        success: { 204: null },
        problems: ['dead_letter_not_found'],
        async apply({ c, param: { process, id }, act }) {
          await deadLetterOperations.delete(await letterOf(c, process, id), act)
          return c.body(null, 204)
        },
      }),
    )
    .post(
      '/:id/requeue',
      ...action({
        ...onLetter,
        operationId: 'requeueDeadLetter',
        summary: 'Publish the due step of its run again, and delete the dead letter',
        description:
          'The transaction of a start message is queued instead, and the response is its run. An event is sent to its run once more, which needs the scope transactions:signal too. ' +
          'A change for which runs wait has its object read, and the response is the run that reads it.',
        success: { 202: ChangedRun },
        problems: [
          'invalid_request',
          'input_invalid',
          'dead_letter_not_found',
          'process_not_found',
          'dead_letter_without_run',
          'transaction_not_active',
          'transaction_conflict',
          'transaction_not_found',
          'event_not_found',
          'event_already_received',
        ],
        async apply({ c, caller, param: { process, id }, act }) {
          const letter = await letterOf(c, process, id)
          const requireSignal = (): void => caller.requireScope('transactions:signal')
          const run = await deadLetterOperations
            .requeue(letter, act, requireSignal)
            .catch((error: unknown) => {
              throw caller.has('transactions:read') ? error : withoutContent(error)
            })
          return c.json(changedRun(caller, run), 202)
        },
      }),
    )
}

/** Returns the error without what it says about the content of the message, such as the names of its members. */
const withoutContent = (error: unknown): unknown =>
  hasCode(error, 'dead_letter_without_run') || hasCode(error, 'input_invalid')
    ? new IntegrationError(error.code, 'a key with transactions:read is told the reason')
    : error

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

/**
 * Returns the content as text; `null` if the content is not UTF-8. If truncation has cut a character at the end, the
 * text ends before this character.
 */
function textOf({ Content, ContentBytes }: DeadLetter): string | null {
  try {
    // With `stream: true`, the decoder accepts an incomplete character at the end.
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(Content, {
      stream: Content.length < ContentBytes,
    })
  } catch {
    return null
  }
}
