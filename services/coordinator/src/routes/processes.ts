import type { Caller } from '@integration-host/shared/access/caller'
import { DecisionChoices } from '@integration-host/shared/contracts/decision'
import type { ErrorCode } from '@integration-host/shared/errors'
import { onlyKnownQuery, callerOf, needs } from '@integration-host/shared/http/request'
import { responses, validate } from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import { choicesAt } from '../decision/decisions.ts'
import { watchedKeysOf } from '../step/change-place.ts'
import { routingKeysOf } from '../step/change-trigger.ts'
import { entryKeysOf } from '../step/entry-trigger.ts'
import { eventsOf, isStartable, type ProcessDefinition } from '../step/definition.ts'
import { versionsOf } from '../run/audit.ts'
import type { Pauses } from '../run/pause.ts'
import { action, type ActionRequest } from './act.ts'
import { ProcessParam } from './contracts.ts'
import { maySeeReasonOfPause } from './pause-reasons.ts'
import type { AppDeps } from '../core.ts'

const HIDDEN_FROM = 'null for a key that is bound to realms or lacks `transactions:read`'

const ProcessView = z
  .object({
    Process: z.string(),
    Steps: z.array(z.string()),
    RequireInternet: z.boolean(),
    Paused: z.boolean(),
    PausedAt: z.iso.datetime().nullable(),
    PausedBy: z
      .string()
      .nullable()
      .meta({
        description: `a person or the id of a key; ${HIDDEN_FROM}`,
      }),
    Reason: z
      .string()
      .nullable()
      .meta({ description: `of the pause; ${HIDDEN_FROM}` }),
    Retry: z.object({
      MaxAttempts: z.int(),
      BaseMs: z
        .number()
        .meta({ description: 'the pause after the first attempt; it then doubles' }),
      CapMs: z.number().meta({ description: 'the longest pause' }),
    }),
    Dispatch: z.enum(['message', 'inline']),
    Concurrency: z
      .int()
      .nullable()
      .meta({ description: 'the maximum number of runs in progress; null: no limit' }),
    ConcurrencyByKey: z.boolean().meta({
      description: '`Concurrency` is for each concurrency key',
    }),
    ConcurrencyPerKey: z.int().optional().meta({
      description:
        'the maximum number of runs of each concurrency key in progress, if `Concurrency` is that of all keys together',
    }),
    Targets: z
      .array(
        z.object({
          Name: z.string(),
          Shared: z.boolean().meta({ description: 'several processes may count their calls here' }),
          PerSecond: z.number().nullable(),
          Concurrent: z.int().nullable(),
        }),
      )
      .optional()
      .meta({ description: 'the targets with limits; absent if there are none' }),
    StepTimeoutSeconds: z.number(),
    Version: z.string().nullable().meta({
      description: 'the version with which runs begin now; null if the process has none',
    }),
    DeadlineSeconds: z.number().nullable().meta({
      description: 'the time limit of a whole run; null if there is none',
    }),
    On: z.array(z.string()).meta({
      description:
        'the routing keys of the changes that start a run, for example intuit.Invoice.create or entry.Invoice.deleted',
    }),
    Events: z.array(z.string()).meta({
      description: 'the events for which runs may wait, and which clients send',
    }),
    Decisions: z.array(DecisionChoices).meta({
      description: 'the events about which persons decide',
    }),
    Watches: z.array(z.string()).meta({
      description: 'the routing keys of the changes that may end a wait of a run',
    }),
    BuiltIn: z.boolean().meta({
      description: 'part of the coordinator: clients cannot queue its transactions',
    }),
    Consuming: z.boolean().meta({ description: 'this replica consumes its steps now' }),
  })
  .meta({ ref: 'Process' })

const Versions = z.object({
  At: z.iso.datetime().meta({ description: 'the time of the audit that has counted' }),
  Items: z.array(z.object({ Version: z.string().nullable(), Unfinished: z.int().nonnegative() })),
  IsLowerBound: z.boolean().meta({ description: 'there may be more runs than were counted' }),
})

const ProcessDetail = ProcessView.extend({
  Input: z.record(z.string(), z.unknown()).nullable().meta({
    description: 'the JSON Schema of `InitialData`; null if the process accepts any',
  }),
  Versions: Versions.nullable().meta({
    description:
      'the number of unfinished runs of each version, as of the latest audit; null before the first audit, and for a ' +
      'key that is bound to realms',
  }),
}).meta({ ref: 'ProcessDetail' })

const ProcessList = z
  .object({
    items: z.array(ProcessView),
    not_loaded: z.array(z.object({ Process: z.string(), Unfinished: z.int() })).meta({
      description:
        'processes that have runs and that no coordinator has loaded, so that no step of them runs',
    }),
  })
  .meta({ ref: 'ProcessList' })

function concurrencyView(concurrency: ProcessDefinition['concurrency']) {
  if (concurrency === null) return { Concurrency: null, ConcurrencyByKey: false }
  const { limit, total, keyOf } = concurrency
  return total === undefined
    ? { Concurrency: limit, ConcurrencyByKey: keyOf !== null }
    : { Concurrency: total, ConcurrencyByKey: false, ConcurrencyPerKey: limit }
}

function targetsView({ bound }: ProcessDefinition) {
  const Targets = [...(bound?.targets ?? [])].flatMap(([name, { limits, shared }]) =>
    limits === null
      ? []
      : [
          {
            Name: shared ?? name,
            Shared: shared !== null,
            PerSecond: limits.intervalMs === 0 ? null : 1_000 / limits.intervalMs,
            Concurrent: limits.concurrent,
          },
        ],
  )
  return Targets.length === 0 ? {} : { Targets }
}

/**
 * `GET /processes`, and the routes that pause and resume a business process. A paused process accepts transactions but
 * runs no step.
 */
export function processRoutes({
  runActions,
  source,
  pauses,
  worker,
  auditor,
  processes,
  lastAudit,
}: AppDeps) {
  const tags = ['processes']
  const view = (definition: ProcessDefinition, paused: Pauses, caller: Caller) => {
    const pause = paused.get(definition.name)
    const maySeeWhy = maySeeReasonOfPause(caller)
    return {
      Process: definition.name,
      Steps: definition.stepNames,
      RequireInternet: definition.requireInternet,
      Paused: pause !== undefined,
      PausedAt: pause?.PausedAt ?? null,
      PausedBy: maySeeWhy ? (pause?.PausedBy ?? null) : null,
      Reason: maySeeWhy ? (pause?.Reason ?? null) : null,
      Retry: {
        MaxAttempts: definition.limits.retry.maxAttempts,
        BaseMs: definition.limits.retry.baseMs,
        CapMs: definition.limits.retry.capMs,
      },
      Dispatch: definition.dispatch,
      ...concurrencyView(definition.concurrency),
      ...targetsView(definition),
      StepTimeoutSeconds: definition.limits.timeoutMs / 1_000,
      Version: definition.version,
      DeadlineSeconds: definition.deadlineMs === null ? null : definition.deadlineMs / 1_000,
      On: [...routingKeysOf(definition.on), ...entryKeysOf(definition.entryOn)],
      Events: eventsOf(definition),
      Decisions: definition.events.flatMap((Event) => {
        const choices = choicesAt(definition, Event)
        return choices === undefined ? [] : [{ Event, ...choices }]
      }),
      Watches: watchedKeysOf(definition),
      BuiltIn: !isStartable(definition),
      Consuming: worker.isConsuming(definition.name),
    }
  }
  const versions = ({ name, version }: ProcessDefinition, caller: Caller) => {
    const audit = lastAudit()
    // A key that is bound to companies gets no counts, because the counts concern all companies.
    return audit === null || caller.isBoundToRealms ? null : versionsOf(audit, name, version)
  }
  const notLoaded = async (caller: Caller): Promise<z.output<typeof ProcessList>['not_loaded']> => {
    if (caller.isBoundToRealms) return [] // the counts concern all companies
    const stored = await source.storedProcesses(
      (name) => !processes.has(name) && !auditor.runsElsewhere(name) && caller.mayUseProcess(name),
    )
    return [...stored].flatMap(([Process, Unfinished]) =>
      Unfinished === null ? [] : [{ Process, Unfinished }],
    )
  }
  const setPaused = (isPaused: boolean) => ({
    tags,
    param: ProcessParam,
    unversioned: 'a process',
    concernsEveryRealm: true, // a pause stops the runs of all companies
    success: ProcessView,
    problems: ['process_not_found'] satisfies ErrorCode[],
    async apply({ c, caller, param, act }: ActionRequest<typeof ProcessParam>) {
      const definition = runActions.process(param.process)
      await runActions.setPaused(definition.name, isPaused, act)
      return c.json(view(definition, await pauses.paused(), caller))
    },
  })
  return new Hono()
    .get(
      '/',
      needs('transactions:read'),
      describeRoute({
        operationId: 'listProcesses',
        tags,
        summary: 'The processes that are loaded, and those that have runs without being loaded',
        responses: responses(ProcessList),
      }),
      onlyKnownQuery(),
      async (c) => {
        const paused = await pauses.paused()
        const caller = callerOf(c)
        const visible = [...processes.values()].filter(({ name }) => caller.mayUseProcess(name))
        const items = visible.map((process) => view(process, paused, caller))
        return c.json({ items, not_loaded: await notLoaded(caller) })
      },
    )
    .get(
      '/:process',
      needs('transactions:read'),
      describeRoute({
        operationId: 'getProcess',
        tags,
        summary: 'One process, with the JSON Schema of its initial data and its versions',
        responses: responses(ProcessDetail, 'process_not_found'),
      }),
      validate('param', ProcessParam),
      onlyKnownQuery(),
      async (c) => {
        const definition = runActions.process(c.req.valid('param').process)
        const caller = callerOf(c)
        return c.json({
          ...view(definition, await pauses.paused(), caller),
          Input: inputSchemaOf(definition),
          Versions: versions(definition, caller),
        })
      },
    )
    .post(
      '/:process/pause',
      ...action({
        operationId: 'pauseProcess',
        summary: 'Pause a process; other replicas follow at their next remote pull',
        ...setPaused(true),
      }),
    )
    .post(
      '/:process/resume',
      ...action({
        operationId: 'resumeProcess',
        summary: 'Resume a process',
        ...setPaused(false),
      }),
    )
}

/**
 * JSON Schema cannot express some checks of a zod schema, such as a refinement. In place of such a check, the JSON
 * Schema accepts any value, and only the zod schema checks the value.
 */
function inputSchemaOf({ input }: ProcessDefinition): Readonly<Record<string, unknown>> | null {
  if (input === null) return null
  try {
    return z.toJSONSchema(input, { io: 'input', unrepresentable: 'any' })
  } catch {
    return {} // accepts any value; this happens if, for example, two parts of the schema have the same id
  }
}
