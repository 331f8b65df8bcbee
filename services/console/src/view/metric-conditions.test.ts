import type { MetricsSummary } from '@integration-host/shared/contracts/metrics-summary'
import { describe, expect, it } from 'vitest'
import {
  coordinatorSummary,
  processState,
  replica,
  unknownInstallation as calm,
} from '../../test-support/installation.ts'
import { createConditionTimes } from './condition.ts'
import { conditionsOf } from './conditions.ts'
import type { Installation, Replica } from './installation.ts'

const MINUTE_MS = 60_000
const process = processState('P')

type Due = NonNullable<MetricsSummary['Coordinator']>['Due'][number]
const due = (over: Partial<Due> = {}): Due => ({
  Process: 'P',
  Step: 's',
  Count: 3,
  OldestSeconds: 60,
  IdleSeconds: 700,
  ...over,
})
const coordinator = (...counts: Parameters<typeof coordinatorSummary>) => ({
  Coordinator: coordinatorSummary(...counts),
})
const gateway = (CoolingDown: number) => ({
  Gateway: { Calls: {}, CallTimes: null, CoolingDown, MeteredCalls: null, MonthlyBudget: null },
})
const tokenService = (NearestExpirySeconds: number | null, ClientRejected = false) => ({
  TokenService: { NearestExpirySeconds, ClientRejected },
})

/** For each condition its minimum duration in minutes, and summaries with and without its cause. */
const causes: Readonly<
  Record<
    string,
    readonly [service: string, minutes: number, Partial<MetricsSummary>, Partial<MetricsSummary>]
  >
> = {
  TokenNearExpiry: ['token-service', 1, tokenService(119), tokenService(121)],
  ProviderClientRefused: ['token-service', 0, tokenService(null, true), tokenService(null)],
  RealmsOnHold: ['accounting-gateway', 15, gateway(2), gateway(0)],
  InternetAway: ['coordinator', 0, coordinator({ Online: false }), coordinator()],
  BooksOutOfBalance: [
    'coordinator',
    3,
    coordinator({ Violations: { stuck: 1 } }),
    coordinator({ Violations: { stuck: 0 } }),
  ],
  RunsNotTaken: [
    'coordinator',
    10,
    coordinator({ Due: [due()] }),
    coordinator({ Due: [due({ IdleSeconds: 599 })] }),
  ],
  RunsLate: [
    'coordinator',
    5,
    coordinator({ Due: [due({ OldestSeconds: 301, IdleSeconds: 0 })] }),
    coordinator({ Due: [due({ OldestSeconds: 299, IdleSeconds: 0 })] }),
  ],
  DeadMessages: [
    'coordinator',
    0,
    coordinator({ DeadLetters: { P: 2 } }),
    coordinator({ DeadLetters: { P: 0 } }),
  ],
  EventLoopLag: ['demo-api', 10, { LagMs: 260 }, { LagMs: 240 }],
}
const withReplicas = (name: string, ...replicas: readonly Replica[]): Installation => ({
  ...calm,
  services: [{ name, replicas }],
})

describe('the conditions that the metrics show', () => {
  it.each(Object.entries(causes))(
    'the condition %s is shown when its cause has lasted long enough, and disappears after the cause has ended',
    (name, [service, minutes, bad, good]) => {
      const times = createConditionTimes()
      const shownAfter = (minute: number, summary: Partial<MetricsSummary>): boolean =>
        times
          .dated(conditionsOf(withReplicas(service, replica(summary))), minute * MINUTE_MS)
          .some(({ Name }) => Name === name)
      expect(shownAfter(0, bad)).toBe(minutes === 0)
      expect(shownAfter(minutes, bad)).toBe(true)
      expect(shownAfter(minutes + 1, good)).toBe(false)
      // When the cause returns, the duration starts again.
      expect(shownAfter(minutes + 2, bad)).toBe(minutes === 0)
    },
  )

  it('the condition RunsNotTaken says why no worker claims the runs, if the console knows the reason', () => {
    const found = (
      over: Partial<Installation>,
      counts: Parameters<typeof coordinatorSummary>[0] = {},
      ofReplica: Partial<Replica> = {},
    ) =>
      conditionsOf({
        ...withReplicas(
          'coordinator',
          replica(coordinator({ Due: [due()], ...counts }), ofReplica),
        ),
        processes: [process],
        ...over,
      }).find(({ name }) => name === 'RunsNotTaken')
    const reasons = [
      found({ processes: [{ ...process, isPaused: true }] }),
      found({ processes: [{ ...process, isLoaded: false }] }),
      found({ processes: [{ ...process, needsInternet: true }] }, { Online: false }),
      found(
        {},
        {},
        {
          report: {
            status: 'waiting',
            dependencies: {
              rabbitmq: {
                status: 'down',
                since: '2026-11-23T10:00:00.000Z',
                reason: 'ECONNREFUSED',
              },
            },
          },
        },
      ),
      found({}, {}, { misses: 3 }),
      found({}, { Online: false }),
    ]
    expect(reasons.map((condition) => condition?.detail)).toEqual([
      'The process is paused.',
      'No coordinator has loaded the process.',
      'The process needs the internet, and no probe reaches it.',
      'The coordinator waits for rabbitmq.',
      'No coordinator responds.',
      'No worker has finished this step for 10 minutes.',
    ])
    expect(reasons.map((condition) => condition?.isConsequence)).toEqual([
      true,
      false,
      true,
      true,
      true,
      false,
    ])
    expect(reasons[0]).toMatchObject({
      title: '3 runs are due at P.s, and no worker claims them',
      severity: 'critical',
      affected: 3,
      labels: { process: ['P'], step: ['s'] },
    })
  })

  it('due runs cause no condition RunsNotTaken if any coordinator has finished the step within the last 10 minutes', () => {
    const replicas = [700, 5].map((IdleSeconds) =>
      replica(coordinator({ Due: [due({ IdleSeconds })] })),
    )
    expect(conditionsOf(withReplicas('coordinator', ...replicas))).toEqual([])
  })

  it('a condition uses the highest value of all replicas, because all replicas count the same tables', () => {
    const replicas = [1, 4, 2].map((P) => replica(coordinator({ DeadLetters: { P } })))
    expect(conditionsOf(withReplicas('coordinator', ...replicas))).toMatchObject([
      { name: 'DeadMessages', title: '4 dead letters of P' },
    ])
  })

  it('a condition stays, with the last values, while no replica of its service responds', () => {
    const silent = replica(coordinator({ DeadLetters: { P: 2 } }), { misses: 1 })
    expect(conditionsOf(withReplicas('coordinator', silent))).toMatchObject([
      { name: 'DeadMessages' },
    ])
  })

  it('a replica of an earlier release, which has no summary of its metrics, causes no condition', () => {
    expect(conditionsOf(withReplicas('coordinator', replica({}, { summary: null })))).toEqual([])
  })

  it('objects that were changed or deleted in the books are one condition for each kind', () => {
    const outside = coordinator({
      EntriesOutside: [
        { State: 'Deleted', Entity: 'Invoice', Count: 2 },
        { State: 'ChangedOutside', Entity: 'Payment', Count: 1 },
        { State: 'Missing', Entity: 'JournalEntry', Count: 2 },
      ],
    })
    const services = [{ name: 'coordinator' as const, replicas: [replica(outside)] }]
    expect(conditionsOf({ ...calm, services })).toMatchObject([
      {
        name: 'EntriesOutside',
        title: '2 invoices that runs have written were deleted in the books',
        page: '/entries?state=Deleted&entity=Invoice',
      },
      {
        name: 'EntriesOutside',
        title: '2 journal entries that runs have written were not found in the books',
      },
      {
        name: 'EntriesOutside',
        title: '1 payment that runs have written was changed in the books',
      },
    ])
  })
})
