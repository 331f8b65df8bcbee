import type { CreateDecisionLink } from '@integration-host/shared/contracts/decision'
import { Reason } from '@integration-host/shared/contracts/text'
import {
  ActBody,
  ReplayTransaction,
  RunResponse,
  SignalTransaction,
} from '@integration-host/shared/contracts/run'
import type { Caller } from '@integration-host/shared/access/caller'
import type { Scope } from '@integration-host/shared/access/scope'
import { type ErrorCode, IntegrationError } from '@integration-host/shared/errors'
import {
  knownQuery,
  requireJsonLimits,
  responses,
  validate,
} from '@integration-host/shared/http/service-app'
import { callerOf, needs, ifMatch } from '@integration-host/shared/http/request'
import { headerParameter } from '@integration-host/shared/http/openapi'
import type { Context, Handler } from 'hono'
import { describeRoute, resolver } from 'hono-openapi'
import { z } from 'zod'
import type { QueueTransaction } from '@integration-host/shared/contracts/transaction'
import { parseClientJson } from '../run/json-normalization.ts'
import type { Act, Actor } from '../run/action.ts'
import { StorableJson, utf8Of } from '../run/queueable.ts'
import type { Run } from '../run/run.ts'

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
  .refine(({ Outcome, Data }) => Outcome === 'done' || Data === undefined, {
    path: ['Data'],
    error: 'is allowed only with Outcome done',
  })
  .meta({ ref: 'SettleTransaction' })
/** The body of an event: the shared schema, restricted to JSON that can be stored unchanged. */
export const SignalBody = SignalTransaction.extend({
  Data: StorableJson.optional().meta({ description: 'the data of the event; null by default' }),
}).meta({ ref: 'SignalTransaction' })
export type ActSchema =
  | typeof ActBody
  | typeof SettleBody
  | typeof SignalBody
  | typeof CreateDecisionLink

/**
 * Reads the body of an action. Returns the body and the context of the action: the caller, the reason, and the version
 * in `If-Match`.
 *
 * @throws {IntegrationError} `invalid_request` if the body or the header is not valid.
 */
export async function readAct<Schema extends ActSchema>(
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

const NO_QUERY = z.object({})

/** A request to act on something, after it was validated. */
export interface ActionRequest<
  Param extends z.ZodType,
  Query extends z.ZodObject = typeof NO_QUERY,
  Schema extends ActSchema = typeof ActBody,
> {
  readonly c: Context
  readonly caller: Caller
  readonly param: z.output<Param>
  readonly query: z.output<Query>
  readonly body: z.output<Schema>
  readonly act: Act
}

/** A route with which an operator acts on something. */
export interface ActionRoute<
  Param extends z.ZodType = z.ZodType,
  Query extends z.ZodObject = typeof NO_QUERY,
  Schema extends ActSchema = typeof ActBody,
> {
  readonly operationId: string
  readonly tags: string[]
  readonly summary: string
  readonly description?: string
  readonly param: Param
  readonly query?: Query
  readonly body?: Schema
  /** Default: `transactions:operate`. */
  readonly scope?: Scope
  /** What has no version for `If-Match`, such as `an operation`; absent for a run, which has a version. */
  readonly unversioned?: string
  /** Whether the action concerns all companies, so that a key that is bound to companies may not take it. */
  readonly concernsEveryRealm?: boolean
  readonly success: Parameters<typeof responses>[0]
  readonly problems: readonly ErrorCode[]
  readonly apply: (request: ActionRequest<Param, Query, Schema>) => Promise<Response>
}

/** Returns the handlers of a route that requires a scope and reads a reason from its body. */
export function action<
  Param extends z.ZodType,
  Query extends z.ZodObject = typeof NO_QUERY,
  Schema extends ActSchema = typeof ActBody,
>(route: ActionRoute<Param, Query, Schema>): [Handler, ...Handler[]] {
  const {
    param,
    unversioned,
    concernsEveryRealm = false,
    success,
    problems,
    apply,
    scope = 'transactions:operate',
    ...rest
  } = route
  const { query = NO_QUERY, body: schema = ActBody, ...described } = rest
  return [
    needs(scope),
    describeRoute({
      ...described,
      ...(unversioned === undefined && { parameters: [IF_MATCH] }),
      requestBody: describeBody(schema),
      responses: responses(success, ...problems),
    }),
    validate('param', param),
    knownQuery(query),
    async (c: Context) => {
      const caller = callerOf(c)
      if (concernsEveryRealm) caller.requireEveryRealm()
      const { body, act } = await readAct(c, schema)
      if (unversioned !== undefined) rejectVersion(act, unversioned)
      // The casts hold, because the schemas of this route have validated these parts of the request.
      const valid = (target: 'param' | 'query'): never => c.req.valid(target as never)
      const request = { c, caller, param: valid('param'), query: valid('query'), act }
      return apply({ ...request, body: body as never })
    },
  ]
}

/**
 * Rejects an action with `If-Match` on something that has no version.
 *
 * @throws {IntegrationError} `invalid_request`
 */
export function rejectVersion({ ifVersion }: Act, target: string): void {
  if (ifVersion !== null)
    throw new IntegrationError('invalid_request', `${target} has no Version for If-Match`)
}

const isRequired = (schema: ActSchema): boolean => !schema.safeParse({}).success

/** The OpenAPI description of the body. */
export const describeBody = (schema: ActSchema) => ({
  required: isRequired(schema),
  content: { 'application/json': { schema: resolver(schema) } },
})

/** The OpenAPI description of the header `If-Match`. */
const IF_MATCH = headerParameter(
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

/** The members of a run that every key may see which may change the run: its key, its status and its times. */
const WITHOUT_DATA = {
  Process: true,
  TransactionID: true,
  ReplayID: true,
  Status: true,
  Version: true,
  NextAttemptAt: true,
  NotBefore: true,
  DeadlineAt: true,
  CreatedAt: true,
  UpdatedAt: true,
  CompletedAt: true,
  ErasedAt: true,
  PurgedAt: true,
} as const

/** The run as a key without `transactions:read` sees it, with what the request itself has brought. */
const RunWithoutData = RunResponse.pick(WITHOUT_DATA)
  .extend(RunResponse.pick({ InitialData: true, Realm: true, Tags: true }).partial().shape)
  .meta({
    ref: 'RunWithoutData',
    description:
      'The run for a key without `transactions:read`. `InitialData`, `Realm` and `Tags` are those of the request.',
  })

/** The response of a request that has queued or changed a run. */
export const ChangedRun = z.union([RunResponse, RunWithoutData]).meta({ ref: 'ChangedRun' })

/** What a request that queues or changes a run has brought. */
export interface Brought {
  readonly InitialData?: QueueTransaction['InitialData'] | undefined
  readonly Realm?: QueueTransaction['Realm']
  readonly Tags?: QueueTransaction['Tags']
}

/** Returns the members of `from` that `members` names. */
export const picked = <T extends object, K extends keyof T>(
  from: T,
  members: Readonly<Record<K, true>>,
): Pick<T, K> =>
  Object.fromEntries(
    Object.keys(members).map((name) => [name, from[name as keyof T]]),
  ) as unknown as Pick<T, K>

/**
 * Returns the run as its response may show it to the caller. Without `transactions:read` the response contains no stored
 * data, because another request may have brought it: a debounced run, for example, has the data of the last request
 * that it has absorbed.
 *
 * @param brought what the request itself has brought
 */
export function changedRun(
  caller: Caller,
  run: Run,
  brought: Brought = {},
): z.output<typeof ChangedRun> {
  if (caller.has('transactions:read')) return run
  const { InitialData, Realm, Tags } = brought
  return {
    ...picked(run, WITHOUT_DATA),
    ...(InitialData !== undefined && { InitialData }),
    ...(Realm !== undefined && { Realm }),
    ...(Tags !== undefined && { Tags }),
  }
}
