/** Tests the page Charts in a browser, with the present values of a running installation and with Prometheus. */
import { createServer } from 'node:http'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import type { Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { connectCompany } from '../../host/src/story.ts'
import { expectAccessible } from './accessibility.ts'
import { type ConsoleBrowser, startConsoleBrowser } from './console-browser.ts'
import { type FakeConsole, startFakeConsole } from './fake-console.ts'

const chart = (page: Page, title: string) =>
  page.getByRole('img', { name: new RegExp(`^${title}`) })

describe('the charts of the console with Prometheus', () => {
  let at: ConsoleBrowser
  const prometheus = createServer((request, response) => {
    const { searchParams } = new URL(request.url ?? '', 'http://prometheus.invalid')
    const [start, end, step] = ['start', 'end', 'step'].map((name) =>
      Number(searchParams.get(name)),
    ) as [number, number, number]
    const values = Array.from({ length: (end - start) / step + 1 }, (_, index) => [
      start + index * step,
      String(Math.sin(index / 9) + 1.2),
    ]).filter((_, index) => index < 40 || index > 60)
    const result = ['one', 'two'].map((name) => ({
      metric: { outcome: name, status: name, class: name },
      values,
    }))
    response.setHeader('Content-Type', 'application/json')
    response.end(JSON.stringify({ status: 'success', data: { resultType: 'matrix', result } }))
  })

  beforeAll(async () => {
    prometheus.listen(0, '127.0.0.1')
    await once(prometheus, 'listening')
    const { port } = prometheus.address() as AddressInfo
    at = await startConsoleBrowser({
      PROMETHEUS_URL: `http://127.0.0.1:${port}`,
      GRAFANA_URL: 'https://grafana.example.com',
    })
    await connectCompany(at.host, { stage() {}, line() {} })
  })
  afterAll(async () => {
    await at?.[Symbol.asyncDispose]()
    prometheus.close()
  })
  afterEach(() => expect(at.problems).toEqual([]))

  it('the page Charts shows four charts of the chosen range with their gaps, tables of the same values, and a link to Grafana', async () => {
    const page = await at.signIn()
    await page.getByRole('link', { name: 'Charts' }).click()
    await chart(page, 'Runs that have not completed').waitFor()
    expect(await page.locator('.figure').count()).toBe(4)
    await page.getByRole('link', { name: '24 hours' }).click()
    await page.waitForURL(`${at.console.url}/charts?range=24h`)
    await page.getByText('Values of Steps per minute').click()
    await page.getByRole('columnheader', { name: 'two' }).first().waitFor()
    await expect.poll(() => page.locator('.figure tbody tr').count()).toBe(144)
    // The gap in the middle interrupts the line of each chart.
    const path = await page.locator('.plot .line').first().getAttribute('d')
    expect(path?.match(/M/g)).toHaveLength(2)
    const grafana = page.getByRole('link', { name: 'Grafana' })
    expect(await grafana.getAttribute('href')).toBe('https://grafana.example.com')
    await page.getByText('Values of Steps per minute').click()
    await expectAccessible(page, 'charts')
  })
})

describe('the charts of the console without Prometheus', () => {
  let at: FakeConsole
  beforeAll(async () => {
    at = await startFakeConsole()
    at.fake.counts = {
      ...at.fake.counts,
      Runs: { Failed: 2, Completed: 9 },
      Steps: { completed: 4 },
    }
  })
  afterAll(() => at?.[Symbol.asyncDispose]())

  it('the page Charts collects the values of the services while it is open', async () => {
    const page = await at.signIn()
    // The console has read the counts of this test.
    await expect
      .poll(async () => page.evaluate("fetch('/api/charts').then((response) => response.text())"))
      .toContain('"Failed":2')
    await page.goto(`${at.url}/charts`)
    await chart(page, 'Runs that have not completed, at most 2').waitFor()
    await page.getByText('Since this page was opened').waitFor()
    const steps = page.locator('.figure', { hasText: 'Steps per minute' })
    await steps.getByText('Nothing in this time.').waitFor()
    at.fake.counts = { ...at.fake.counts, Steps: { completed: 5 } }
    // The page reads the console every 15 s.
    await chart(page, 'Steps per minute').waitFor({ timeout: 60_000 })
    expect(await steps.locator('.legend').textContent()).toMatch(/completed \d/)
    expect(at.problems).toEqual([])
  })
})
