import { describe, expect, it } from 'vitest'
import {
  company,
  processState,
  unknownInstallation as calm,
} from '../../test-support/installation.ts'
import { createConditionTimes } from './condition-times.ts'
import { withoutCovered } from './condition.ts'
import { conditionsOf } from './conditions.ts'
import { createFigureHistory } from './figure-history.ts'
import type { Installation, Replica } from './installation.ts'
import { conditionSources, eventLoopLag, metricConditions } from './metric-conditions.ts'
import { parseMetrics } from './metric-text.ts'

const START = 1_000 * 60_000
const READ_MS = 30_000
const replica = (text: string, over: Partial<Replica> = {}): Replica => ({
  address: '10.0.0.1:80',
  misses: 0,
  since: 0,
  reason: null,
  report: { status: 'ready', dependencies: {} },
  samples: parseMetrics(text),
  clockOffsetMs: 0,
  ...over,
})
const process = processState('P')

/**
 * The metrics that cause each condition. `minute` is the number of minutes during which the cause has lasted; the
 * counters grow with this number. `isBad` is false after the cause has ended.
 */
const causes: Readonly<
  Record<string, { service: string; metrics: (minute: number, isBad: boolean) => string }>
> = {
  TokenNearExpiry: {
    service: 'token-service',
    metrics: (_, isBad) => `credential_nearest_expiry_seconds ${isBad ? 119 : 121}`,
  },
  EnvelopesRefused: {
    service: 'token-service',
    metrics: (minute) => `envelopes_refused_total ${minute}`,
  },
  RefreshesFailing: {
    service: 'token-service',
    metrics: (minute, isBad) =>
      [
        `credentials_faulted ${isBad ? 1 : 0}`,
        `credential_refreshes_total{outcome="failed",class="invalid_grant"} ${3 * minute}`,
        `credential_refreshes_total{outcome="refreshed",class=""} ${10 * minute}`,
        `credential_refreshes_total{outcome="superseded",class=""} ${500 * minute}`,
      ].join('\n'),
  },
  ProviderSlow: {
    service: 'token-service',
    metrics: (minute) =>
      [
        `provider_request_duration_seconds_bucket{call="refresh",le="5"} ${minute}`,
        `provider_request_duration_seconds_bucket{call="refresh",le="10"} ${10 * minute}`,
        `provider_request_duration_seconds_bucket{call="refresh",le="+Inf"} ${10 * minute}`,
      ].join('\n'),
  },
  GatewayErrors: {
    service: 'accounting-gateway',
    metrics: (minute) =>
      [
        `gateway_requests_total{status="503"} ${minute}`,
        `gateway_requests_total{status="200"} ${15 * minute}`,
      ].join('\n'),
  },
  GatewayThrottling: {
    service: 'accounting-gateway',
    metrics: (minute) => `gateway_throttled_total ${minute}`,
  },
  RealmsOnHold: {
    service: 'accounting-gateway',
    metrics: (_, isBad) => `gateway_realms_on_hold ${isBad ? 2 : 0}`,
  },
  BooksOutOfBalance: {
    service: 'coordinator',
    metrics: (_, isBad) => `coordinator_violations{kind="stuck"} ${isBad ? 1 : 0}`,
  },
  RunsNotTaken: {
    service: 'coordinator',
    metrics: (_, isBad) => `coordinator_due_runs{process="P",step="s"} ${isBad ? 3 : 0}`,
  },
  RunsLate: {
    service: 'coordinator',
    metrics: (_, isBad) =>
      `coordinator_oldest_due_seconds{process="P",step="s"} ${isBad ? 301 : 299}`,
  },
  DeadMessages: {
    service: 'coordinator',
    metrics: (_, isBad) => `coordinator_dead_messages{process="P"} ${isBad ? 2 : 0}`,
  },
  LeasesLost: {
    service: 'coordinator',
    metrics: (minute) =>
      [
        `coordinator_steps_total{outcome="lost"} ${minute}`,
        `coordinator_steps_total{outcome="fenced"} ${minute}`,
      ].join('\n'),
  },
  SweepsMany: {
    service: 'coordinator',
    metrics: (minute) => `coordinator_sweep_publishes_total ${70 * minute}`,
  },
  EventLoopLag: {
    service: 'demo-api',
    metrics: (_, isBad) => `nodejs_eventloop_lag_p99_seconds ${isBad ? 0.26 : 0.24}`,
  },
}

/**
 * Makes the console read each of these metric texts in turn. Returns, for each read, the names of the conditions that
 * are shown after it.
 */
function shownNames(service: string, metrics: readonly string[]): readonly (readonly string[])[] {
  const history = createFigureHistory(conditionSources)
  const times = createConditionTimes()
  return metrics.map((text, read) => {
    const at = START + read * READ_MS
    const services = [{ name: service, replicas: [replica(text)] }]
    history.add(at, services)
    const conditions = conditionsOf({ ...calm, services }, (query, minutes) =>
      history.over(query, minutes, at),
    )
    return times.dated(conditions, at).map(({ Name }) => Name)
  })
}

const due = (installation: Partial<Installation>, text: string, over: Partial<Replica> = {}) =>
  conditionsOf(
    {
      ...calm,
      processes: [process],
      services: [
        {
          name: 'coordinator',
          replicas: [replica(`coordinator_due_runs{process="P",step="s"} 3\n${text}`, over)],
        },
      ],
      ...installation,
    },
    () => [],
  ).find(({ name }) => name === 'RunsNotTaken')

describe('the conditions that the metrics show', () => {
  it('there is a test of every condition that the metrics show', () => {
    const names = [...metricConditions, eventLoopLag].map(({ name }) => name)
    expect(Object.keys(causes).toSorted()).toEqual(names.toSorted())
  })

  it.each(Object.entries(causes))(
    'the condition %s is shown when its cause has lasted long enough, and disappears after the cause has ended',
    (name, { service, metrics }) => {
      const rule = metricConditions.find((one) => one.name === name)
      const { forMinutes } = rule ?? eventLoopLag
      const minutes = rule?.minutes ?? 0
      const bad = 2 * (forMinutes + minutes + 2)
      const good = 2 * (minutes + 1)
      const shown = shownNames(service, [
        ...Array.from({ length: bad }, (_, read) => metrics(read / 2, true)),
        ...Array.from({ length: good }, () => metrics((bad - 1) / 2, false)),
      ]).map((names) => names.includes(name))
      expect(shown.indexOf(true)).toBeGreaterThanOrEqual(2 * forMinutes)
      expect(shown[bad - 1]).toBe(true)
      expect(shown.at(-1)).toBe(false)
    },
  )

  /** Metrics of token-service after half of all refreshes have failed with this class in each of `minutes` minutes. */
  const refreshes = (minutes: number, failureClass: string, faulted: number) =>
    [
      `credentials_faulted ${faulted}`,
      `credential_refreshes_total{outcome="failed",class="${failureClass}"} ${minutes}`,
      `credential_refreshes_total{outcome="refreshed",class=""} ${minutes}`,
    ].join('\n')
  /**
   * Lets refreshes fail for 20 minutes and then succeed. Returns for how many minutes after that the condition
   * RefreshesFailing is still shown.
   */
  const minutesShownAfter = (failureClass: string): number =>
    shownNames('token-service', [
      ...Array.from({ length: 40 }, (_, read) => refreshes(read / 2, failureClass, 1)),
      ...Array.from({ length: 40 }, () => refreshes(19.5, failureClass, 0)),
    ])
      .slice(40)
      .filter((names) => names.includes('RefreshesFailing')).length / 2

  it('the condition RefreshesFailing ends as soon as every company with a rejected grant is connected again', () => {
    expect(minutesShownAfter('invalid_grant')).toBe(0)
  })

  it('if no company has a fault, the condition RefreshesFailing ends within five minutes after the last failure of the provider', () => {
    // The window has the current minute and the four minutes before it.
    expect(minutesShownAfter('provider_unavailable')).toBe(4)
  })

  it.each([
    ['used_elsewhere', true],
    ['invalid_grant', true],
    ['provider_unavailable', false],
    ['throttled', false],
  ])(
    'after failures of the class %s, whether the condition of the companies covers RefreshesFailing is %s',
    (failureClass, isCovered) => {
      const rule = metricConditions.find(({ name }) => name === 'RefreshesFailing')
      expect(rule?.covered?.when([{ labels: [failureClass], value: 3 }])).toBe(isCovered)
      expect(rule?.covered?.by).toBe('CredentialsFaulted')
    },
  )

  it('the condition of a company with a rejected grant is shown once, without RefreshesFailing', () => {
    const figures = createFigureHistory(conditionSources)
    const state = (minutes: number, faulted: Installation['faulted']): Installation => ({
      ...calm,
      faulted,
      services: [
        { name: 'token-service', replicas: [replica(refreshes(minutes, 'invalid_grant', 1))] },
      ],
    })
    for (const minute of [0, 0.5]) figures.add(START + minute * 60_000, state(minute, []).services)
    const shown = (faulted: Installation['faulted']): readonly string[] =>
      withoutCovered(
        conditionsOf(state(0.5, faulted), (query, minutes) =>
          figures.over(query, minutes, START + READ_MS),
        ),
      ).map(({ name }) => name)
    expect(shown([company('ACC-1', 'must_reconnect', 'Company 1')])).toEqual(['CredentialsFaulted'])
    // The console has not read the fault yet.
    expect(shown([])).toEqual(['RefreshesFailing'])
  })

  it.each([
    [['must_reconnect'], 'With a fault: Company 1.', '/companies/1'],
    [
      ['must_reconnect', 'failing'],
      'With a fault: Company 1 and Company 2.',
      '/companies?state=must_reconnect',
    ],
    [[], '', '/charts'],
  ] as const)(
    'if the companies with a fault have the states %j, the condition RefreshesFailing says “%s” and leads to %s',
    (states, text, page) => {
      const faulted = states.map((state, index) =>
        company(`ACC-${index + 1}`, state, `Company ${index + 1}`),
      )
      const rule = metricConditions.find(({ name }) => name === 'RefreshesFailing')
      expect(rule?.words(0.5, [], { ...calm, faulted })).toMatchObject({
        detail: `50 % within 15 minutes. ${text}`.trim(),
        page,
      })
    },
  )

  it('a cause that ends before its minimum duration shows no condition, and the duration starts again when the cause returns', () => {
    const text = (lag: number) => `nodejs_eventloop_lag_p99_seconds ${lag}`
    const shown = shownNames('demo-api', [
      ...Array.from({ length: 19 }, () => text(1)),
      text(0),
      ...Array.from({ length: 19 }, () => text(1)),
    ])
    expect(shown.flat()).toEqual([])
  })

  it('due runs of a step cause no condition RunsNotTaken if a worker has finished the step within the last 10 minutes', () => {
    const metrics = (steps: number) =>
      [
        'coordinator_due_runs{process="P",step="s"} 3',
        `coordinator_steps_total{process="P",step="s",outcome="completed"} ${steps}`,
      ].join('\n')
    expect(
      shownNames(
        'coordinator',
        Array.from({ length: 60 }, (_, n) => metrics(n)),
      ).flat(),
    ).toEqual([])
  })

  it('the condition RunsNotTaken says why no worker claims the runs, if the console knows the reason', () => {
    const reasons = [
      due({ processes: [{ ...process, isPaused: true }] }, ''),
      due({ processes: [{ ...process, isLoaded: false }] }, ''),
      due({ processes: [{ ...process, needsInternet: true }] }, 'coordinator_online 0'),
      due({}, '', {
        report: {
          status: 'waiting',
          dependencies: {
            rabbitmq: { status: 'down', since: '2026-11-23T10:00:00.000Z', reason: 'ECONNREFUSED' },
          },
        },
      }),
      due({}, '', { misses: 3 }),
      due({}, 'coordinator_online 0'),
    ]
    expect(reasons.map((condition) => condition?.detail)).toEqual([
      'The process is paused.',
      'No coordinator has loaded the process.',
      'The process needs the internet, and no probe reaches it.',
      'The coordinator waits for rabbitmq.',
      'No coordinator responds.',
      'No worker has finished this step for 10 minutes.',
    ])
    expect(reasons[0]).toMatchObject({
      title: '3 runs are due at P.s, and no worker claims them',
      severity: 'critical',
      affected: 3,
    })
  })

  it('a condition uses the highest value of all replicas, because all replicas count the same tables', () => {
    const services = [
      {
        name: 'coordinator',
        replicas: [1, 4, 2].map((count) =>
          replica(`coordinator_dead_messages{process="P"} ${count}`),
        ),
      },
    ]
    expect(conditionsOf({ ...calm, services }, () => [])).toMatchObject([
      { name: 'DeadMessages', title: '4 dead letters of P' },
    ])
  })

  it('a gauge that is not a number causes no condition', () => {
    const services = [
      { name: 'token-service', replicas: [replica('credential_nearest_expiry_seconds NaN')] },
    ]
    expect(conditionsOf({ ...calm, services }, () => [])).toEqual([])
  })
})
