import { Reason } from '@integration-host/shared/contracts/reason'
import { IntegrationError } from '@integration-host/shared/errors'
import { callerOf } from '@integration-host/shared/http/access'
import { ifMatch, ifMatchParameter } from '@integration-host/shared/http/if-match'
import type { Context } from 'hono'
import { z } from 'zod'
import { parseClientJson } from '../process/json-normalization.ts'
import type { Act, Actor } from '../transaction/action.ts'
import { StorableJson, utf8Of } from './contracts.ts'

/** The body of an action, which is optional as a whole. */
export const ActBody = z.strictObject({ Reason: Reason.optional() })
export const ReplayBody = ActBody.extend({
  fromStep: z.string().optional(),
  InitialData: StorableJson.optional().meta({
    description: 'the initial data of the new run; without it, that of the run before it',
  }),
})
/** An operator has found out whether a step in doubt was done, which must have a reason. */
export const SettleBody = z.strictObject({
  Outcome: z.enum(['done', 'not_done']),
  Data: StorableJson.optional().meta({
    description: 'with `done`: the data of the item, which later steps read; null by default',
  }),
  Reason,
})
type Body = typeof ActBody | typeof SettleBody

/**
 * Reads the body of an action and its circumstances: the caller, the reason, and the version in `If-Match`.
 *
 * @throws {IntegrationError} `invalid_request` if the body or the header is not valid.
 */
export async function readAct<Schema extends Body>(
  c: Context,
  schema: Schema,
): Promise<{ readonly body: z.output<Schema>; readonly act: Act }> {
  const text = utf8Of(await c.req.arrayBuffer())
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

const isRequired = (schema: Body): boolean => !schema.safeParse({}).success

/** The OpenAPI description of the body. */
export const describeBody = (schema: Body) => ({
  required: isRequired(schema),
  content: { 'application/json': { schema: z.toJSONSchema(schema, { io: 'input' }) as object } },
})

/** The OpenAPI description of the header `If-Match`. */
export const IF_MATCH = ifMatchParameter(
  'the Version of the run, in double quotes: rejected with 412 if it is another one',
)

/**
 * Returns the actor of a request that queues transactions; undefined if they are not recorded as actions. What a
 * service of the installation queues by itself is not: no person acted, and most transactions are queued that way.
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
