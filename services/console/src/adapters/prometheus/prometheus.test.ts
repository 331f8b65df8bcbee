import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startConsoleFixture } from '../../../test-support/console-fixture.ts'
import { type FakeService, startFakeService } from '../../../test-support/fake-service.ts'
import type { NowView } from '../../contracts/now.ts'
import { createAlertReader } from './prometheus.ts'

const alert = (state: string, alertname: string, summary?: string) => ({
  labels: { alertname, severity: 'critical' },
  annotations: summary === undefined ? {} : { summary },
  state,
  activeAt: '2026-11-23T10:00:00.123456789+01:00',
  value: '1e+00',
})

describe('the alerts of Prometheus', () => {
  let prometheus: FakeService
  let body: unknown
  beforeAll(async () => {
    prometheus = await startFakeService(({ url: { pathname } }) =>
      pathname === '/api/v1/alerts' ? { body } : undefined,
    )
  })
  afterAll(() => prometheus[Symbol.asyncDispose]())

  it('the alert reader returns the firing alerts, without those that are pending', async () => {
    body = {
      status: 'success',
      data: { alerts: [alert('pending', 'A'), alert('firing', 'B', 'x'.repeat(9_000))] },
    }
    expect(await createAlertReader(prometheus.url)()).toEqual([
      {
        labels: { alertname: 'B', severity: 'critical' },
        summary: 'x'.repeat(500),
        activeAt: Date.parse('2026-11-23T09:00:00.123Z'),
      },
    ])
  })

  it.each([
    ['an error of Prometheus', { status: 'error', error: 'overloaded' }],
    ['a page of a proxy', '<html>'],
    [
      'an alert without a valid time',
      { status: 'success', data: { alerts: [{ ...alert('firing', 'A'), activeAt: 'x' }] } },
    ],
  ])('the alert reader throws for %s', async (_, response) => {
    body = response
    await expect(createAlertReader(prometheus.url)()).rejects.toBeInstanceOf(Error)
  })

  it('GET /api/now shows the firing alerts of Prometheus among the conditions', async () => {
    body = {
      status: 'success',
      data: { alerts: [alert('firing', 'DiskFull', 'The disk is full')] },
    }
    await using console = await startConsoleFixture({ PROMETHEUS_URL: prometheus.url })
    const cookie = await console.signIn({ Link: console.signInLink().split('#')[1] })
    const read = async () =>
      (await (await console.request('/api/now', { cookie })).json()) as NowView
    await expect.poll(read).toMatchObject({
      PrometheusFailedSince: null,
      Conditions: expect.arrayContaining([
        expect.objectContaining({
          Name: 'DiskFull',
          Title: 'The disk is full',
          Since: '2026-11-23T09:00:00.123Z',
          InRunbook: false,
        }),
      ]) as unknown,
    })
  })

  it('GET /api/now returns the time since which Prometheus has not responded, and the console logs the failure once', async () => {
    body = 'overloaded'
    await using console = await startConsoleFixture({ PROMETHEUS_URL: prometheus.url })
    const cookie = await console.signIn({ Link: console.signInLink().split('#')[1] })
    const read = async () =>
      (await (await console.request('/api/now', { cookie })).json()) as NowView
    await expect.poll(read).toMatchObject({ PrometheusFailedSince: expect.any(String) as unknown })
    expect(console.log().match(/alerts of Prometheus could not be read/g)).toHaveLength(1)
  })
})
