import { Reason } from '@integration-host/shared/contracts/reason'
import { type ActBody, ReplayTransaction } from '@integration-host/shared/contracts/run'
import { IntegrationError } from '@integration-host/shared/errors'
import { requireJsonLimits } from '@integration-host/shared/http/service-app'
import { callerOf } from '@integration-host/shared/http/access'
import { ifMatch } from '@integration-host/shared/http/if-match'
import { headerParameter } from '@integration-host/shared/http/openapi'
import type { Context } from 'hono'
import { resolver } from 'hono-openapi'
import { z } from 'zod'
import { parseClientJson } from '../process/json-normalization.ts'
import type { Act, Actor } from '../transaction/action.ts'
import { utf8Of } from '../transaction/queueable.ts'
import { StorableJson } from './contracts.ts'

/** The body of a replay: the shared schema, restricted to JSON that can be stored unchanged. */
export const ReplayBody = ReplayTransaction.extend({
  InitialData: StorableJson.optional().meta({
    description: 'the initial data of the new run; without it, that of the run before it',
  }),
}).meta({ ref: 'ReplayTransaction' })
/**
 * The body of a settlement, with which an operator reports whether a step in doubt took effect. The reason is required.
 */
export const SettleBody = z
  .strictObject({
    Outcome: z.enum(['done', 'not_done']),
    Data: StorableJson.optional().meta({
      description: 'with `done`: the data of the item, which later steps read; null by default',
    }),
    Reason,
  })
  .meta({ ref: 'SettleTransaction' })
type Body = typeof ActBody | typeof SettleBody

/**
 * Reads the body of an action. Returns the body and the context of the action: the caller, the reason, and the version
 * in `If-Match`.
 *
 * @throws {IntegrationError} `invalid_request` if the body or the header is not valid.
 */
export async function readAct<Schema extends Body>(
  c: Context,
  schema: Schema,
): Promise<{ readonly body: z.output<Schema>; readonly act: Act }> {
  const text = utf8Of(await c.req.arrayBuffer())
  requireJsonLimits(text)
  const parsed = schema.safeParse(text === '' ? {} : parseClientJson(text))
  if (!parsed.success) {
    const allowed = Object.keys(schema.shape).join(', ')
    const issue = parsed.error.issues[0]
    const place = issue?.path.join('.') || 'the body'
    throw new IntegrationError(
      'invalid_request',
      `${place}: ${issue?.message ?? 'is invalid'} (the body is a JSON object with ${allowed}${isRequired(schema) ? '' : '; it may be empty'})`,
    )
  }
  const { Reason: reason = null } = parsed.data
  return {
    body: parsed.data as z.output<Schema>,
    act: { by: callerOf(c), reason, ifVersion: ifMatch(c) },
  }
}

/**
 * Reads the body of an action on an object that has no version, such as a process. The request must not have
 * `If-Match`.
 *
 * @param target what the action changes, for the error message, such as `an operation`
 * @throws {IntegrationError} `invalid_request` if the body is not valid, or if the request has `If-Match`.
 */
export async function readActOn<Schema extends Body>(
  c: Context,
  target: string,
  schema: Schema,
): ReturnType<typeof readAct<Schema>> {
  const read = await readAct(c, schema)
  if (read.act.ifVersion !== null)
    throw new IntegrationError('invalid_request', `${target} has no Version for If-Match`)
  return read
}

const isRequired = (schema: Body): boolean => !schema.safeParse({}).success

/** The OpenAPI description of the body. */
export const describeBody = (schema: Body) => ({
  required: isRequired(schema),
  content: { 'application/json': { schema: resolver(schema) } },
})

/** The OpenAPI description of the header `If-Match`. */
export const IF_MATCH = headerParameter(
  'If-Match',
  'the Version of the run, in double quotes: rejected with 412 if it is another one',
)

/**
 * Returns the actor of a request that queues transactions; `undefined` if these transactions are not recorded as
 * actions. They are not recorded if a service of the installation queues them and names neither a person nor a reason.
 * Most transactions are queued in that way.
 */
export function queuerOf(
  c: Context,
  transactions: readonly { readonly Reason?: string | undefined }[],
): Actor | undefined {
  const caller = callerOf(c)
  const isByItself =
    caller.isService &&
    caller.person === null &&
    transactions.every(({ Reason: reason }) => reason === undefined)
  return isByItself ? undefined : caller
}
