import { describe, expect, it } from 'vitest'
import { AT, replica, unknownInstallation } from '../../test-support/installation.ts'
import type { Condition } from './condition.ts'
import { conditionsOf } from './conditions.ts'
import { withFiringAlerts } from './firing-alerts.ts'
import type { Replica } from './installation.ts'
import { MISSES_UNTIL_DOWN } from './outages.ts'

const up = replica({}, { summary: null })
const missing = (misses = MISSES_UNTIL_DOWN, address = up.address): Replica => ({
  ...up,
  address,
  misses,
  reason: 'ECONNREFUSED',
})
/** Returns a replica with these dependencies down. */
const without = (...names: readonly string[]): Replica => ({
  ...up,
  report: {
    status: 'waiting',
    dependencies: Object.fromEntries(
      names.map((name) => [name, { status: 'down', since: AT, reason: 'ECONNREFUSED' }]),
    ),
  },
})
const outages = (services: Readonly<Record<string, readonly Replica[]>>): readonly Condition[] =>
  conditionsOf({
    ...unknownInstallation,
    services: Object.entries(services).map(([name, replicas]) => ({ name, replicas })),
  })

describe('the conditions of what does not respond', () => {
  it('a service counts as down after three failed checks in a row', () => {
    expect(outages({ coordinator: [missing(MISSES_UNTIL_DOWN - 1)] })).toEqual([])
    expect(outages({ coordinator: [missing()] })).toMatchObject([
      { name: 'ServiceDown', severity: 'critical', detail: '10.0.0.1:80: ECONNREFUSED' },
    ])
  })

  it('the replicas of a service that do not respond have one card, which is a warning while another one responds', () => {
    expect(outages({ coordinator: [missing(), missing(3, '10.0.0.2:80'), up] })).toMatchObject([
      {
        title: '2 of 3 replicas of coordinator do not respond',
        severity: 'warning',
        detail: '10.0.0.1:80: ECONNREFUSED and 10.0.0.2:80: ECONNREFUSED',
      },
    ])
  })

  it.each([
    ['processes', 'ProcessFilesFailed', 'coordinator could not load all processes', 'restart it'],
    [
      'service-keys-file',
      'ServiceKeysFileInvalid',
      'coordinator cannot read the key file: an earlier list is still used',
      'Correct the file.',
    ],
    [
      'webhooks-file',
      'WebhooksFileInvalid',
      'coordinator cannot read the webhooks file: an earlier list is still used',
      'Correct the file.',
    ],
  ])(
    'the condition of the file %s that a service cannot read says that a person must correct it',
    (file, name, title, remedy) => {
      const { report, ...found } = without(file)
      const ready = { ...found, report: report === null ? null : { ...report, status: 'ready' } }
      expect(outages({ coordinator: [ready as Replica] })).toMatchObject([
        {
          name,
          title,
          severity: 'warning',
          detail: 'ECONNREFUSED',
          remedy: expect.stringContaining(remedy),
        },
      ])
    },
  )

  it('a broker that is down has one card, which names the services that it stops', () => {
    expect(
      outages({
        coordinator: [without('rabbitmq'), up],
        'token-service': [without('rabbitmq')],
        'webhook-receiver': [without('rabbitmq')],
      }),
    ).toMatchObject([
      {
        name: 'DependencyDown',
        title: 'RabbitMQ cannot be reached',
        remedy:
          'Start RabbitMQ, or repair the way to it: the network, or AMQP_URL of these services. They connect again by themselves, and continue what they have accepted.',
        severity: 'critical',
        detail:
          'coordinator (1 of 2), token-service and webhook-receiver wait for it · ECONNREFUSED',
        affected: 3,
      },
    ])
  })

  it('all that token-service reports while Redis is down has one card, with the services that work without Redis', () => {
    const { report, ...gateway } = without('redis')
    const optional: Replica = {
      ...gateway,
      report: report === null ? null : { ...report, status: 'ready' },
    }
    expect(
      outages({
        'token-service': [without('redis', 'redis-writes', 'redis-replicated', 'credential-keys')],
        'accounting-gateway': [optional],
      }),
    ).toMatchObject([
      {
        title: 'Redis cannot be reached',
        severity: 'critical',
        detail: 'token-service waits for it; accounting-gateway works without it · ECONNREFUSED',
      },
    ])
    expect(outages({ 'accounting-gateway': [optional] })).toMatchObject([{ severity: 'warning' }])
  })

  it('a Redis that rejects writes and a wrong credential key are causes of their own while Redis responds', () => {
    expect(
      outages({ 'token-service': [without('redis-writes', 'credential-keys')] }),
    ).toMatchObject([
      {
        name: 'RedisRejectsWrites',
        title: 'Redis rejects the writes of token-service: no credential can be refreshed',
      },
      { name: 'DependencyDown', title: 'token-service waits for credential-keys' },
    ])
  })

  it('the services that wait for another service are named on the card of what stops that service', () => {
    const gateway = { 'accounting-gateway': [without('token-service')] }
    expect(outages({ 'token-service': [missing()], ...gateway })).toMatchObject([
      {
        title: 'token-service does not respond',
        detail: '10.0.0.1:80: ECONNREFUSED · accounting-gateway waits for it',
      },
    ])
    expect(outages({ 'token-service': [without('redis')], ...gateway })).toMatchObject([
      {
        title: 'Redis cannot be reached',
        detail: 'token-service and accounting-gateway wait for it · ECONNREFUSED',
      },
    ])
  })

  it('the alerts of all services about one cause belong to its card', () => {
    const found = outages({
      coordinator: [without('rabbitmq')],
      'token-service': [without('redis', 'redis-writes')],
    })
    const alert = (alertname: string, labels: Readonly<Record<string, string>>) => ({
      labels: { alertname, ...labels },
      summary: '',
      activeAt: 0,
    })
    const alerts = [
      alert('DependencyDown', { service: 'coordinator', dependency: 'rabbitmq' }),
      alert('DependencyDown', { service: 'token-service', dependency: 'redis-writes' }),
      alert('RedisRejectsWrites', { service: 'token-service' }),
      alert('DependencyDown', { service: 'demo-api', dependency: 'coordinator' }),
    ]
    expect(withFiringAlerts(found, alerts)).toHaveLength(3)
  })
})
