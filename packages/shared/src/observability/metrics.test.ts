import { hostname } from 'node:os'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { MetricsSummary } from '../contracts/metrics-summary.ts'
import { createMetrics } from './metrics.ts'

describe('the metrics that Prometheus scrapes', () => {
  beforeEach(() => void vi.useFakeTimers())
  afterEach(() => void vi.useRealTimers())

  /**
   * Returns a function that scrapes the metrics once and returns how many times the metrics have been computed so far.
   */
  function scraper(): () => Promise<number> {
    const metrics = createMetrics('test')
    let computed = 0
    metrics.beforeEach(() => void (computed += 1))
    return async () => {
      await metrics.readForScrape()
      return computed
    }
  }

  it('every service exports its version and the metrics of its OS process', async () => {
    const instance = `${hostname()}:${process.pid}`
    expect(await createMetrics('test').read()).toMatch(
      new RegExp(
        `^service_info\\{version="\\d+\\.\\d+\\.\\d+(?:-dev)?",instance="${instance}",service="test"\\} 1$`,
        'm',
      ),
    )
  })

  it('the services of an OS process share the metrics of the process, each with its own label', async () => {
    const [first, second] = [createMetrics('first'), createMetrics('second')]
    const metric = 'nodejs_eventloop_utilization_summary'
    expect(first.registry.getSingleMetric(metric)).toBe(second.registry.getSingleMetric(metric))
    expect(await second.read()).toMatch(/^process_start_time_seconds\{service="second"\} \d+/m)
  })

  it('the summary has the version, facts of the OS process, and the part of the service', async () => {
    const metrics = createMetrics('test')
    const TokenService = { ClientRejected: true, NearestExpirySeconds: null }
    metrics.summarize(() => ({ TokenService }))
    const summary = MetricsSummary.parse(await metrics.summary())
    expect(summary).toMatchObject({ Version: expect.stringMatching(/^\d+\./), TokenService })
    expect(Date.parse(summary.StartedAt)).toBeLessThanOrEqual(Date.now())
    expect(summary.MemoryBytes).toBeGreaterThan(1_000_000)
    expect(summary.LagMs).toBeGreaterThanOrEqual(0)
  })

  it('a service computes its metrics for each scrape while scrapes are rare', async () => {
    const scrape = scraper()
    for (let scrapes = 1; scrapes <= 20; scrapes += 1) expect(await scrape()).toBe(scrapes)
  })

  it('a service computes its metrics at most four times a second if clients scrape without a pause', async () => {
    const scrape = scraper()
    for (let scrapes = 0; scrapes < 100; scrapes += 1) await scrape()
    const afterBurst = await scrape()
    for (let tenths = 0; tenths < 100; tenths += 1) {
      vi.advanceTimersByTime(100)
      await scrape()
    }
    expect((await scrape()) - afterBurst).toBe(40)
  })

  it('a scrape between two computations of the metrics returns the result of the last computation', async () => {
    const metrics = createMetrics('test')
    const calls = metrics.counter('calls_total', 'Calls')
    for (let scrapes = 0; scrapes < 100; scrapes += 1) await metrics.readForScrape()
    calls.inc()
    expect(await metrics.readForScrape()).toContain('calls_total{service="test"} 0')
    vi.advanceTimersByTime(250)
    expect(await metrics.readForScrape()).toContain('calls_total{service="test"} 1')
  })
})
