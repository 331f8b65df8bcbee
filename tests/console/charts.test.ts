/** Tests the page Charts with the metrics of a running installation. */
import { createServer } from 'node:http'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { connectCompany } from '../../host/src/story.ts'
import { expectAccessible } from './accessibility.ts'
import { type ConsoleBrowser, startConsoleBrowser } from './console-browser.ts'

describe('the charts of the console in a browser', () => {
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
      metric: { outcome: name, status: name, process: 'Order', step: name, call: name },
      values,
    }))
    response.setHeader('Content-Type', 'application/json')
    response.end(JSON.stringify({ status: 'success', data: { resultType: 'matrix', result } }))
  })

  beforeAll(async () => {
    prometheus.listen(0, '127.0.0.1')
    await once(prometheus, 'listening')
    const { port } = prometheus.address() as AddressInfo
    at = await startConsoleBrowser({ PROMETHEUS_URL: `http://127.0.0.1:${port}` })
    await connectCompany(at.host, { stage() {}, line() {} })
  })
  afterAll(async () => {
    await at?.[Symbol.asyncDispose]()
    prometheus.close()
  })
  afterEach(async () => {
    for (const page of at.context.pages()) await page.close()
    await at.context.clearCookies()
    expect(at.problems).toEqual([])
  })

  it('the page Charts shows eight charts with a common cross-hair, with markers, and with tables of the same values', async () => {
    const page = await at.signIn()
    await page.getByRole('link', { name: 'Charts' }).click()
    await page.getByRole('img', { name: /^Runs that have not completed/ }).waitFor({
      timeout: 30_000,
    })
    expect(await page.locator('.figure').count()).toBe(8)
    await page.getByText(/coordinator started/).waitFor()
    await page.getByRole('link', { name: '24 hours' }).click()
    await page.getByRole('img', { name: /^Refreshes per minute/ }).waitFor()
    await page.getByRole('slider').press('Home')
    expect(await page.locator('.plot .hair').count()).toBe(8)
    await page.getByText('Values of Steps per minute').click()
    await page.getByRole('columnheader', { name: 'two' }).first().waitFor()
    expect(await page.locator('.figure tbody tr').count()).toBe(144)
    // The gap in the middle interrupts the line of each chart.
    const path = await page.locator('.plot .line').first().getAttribute('d')
    expect(path?.match(/M/g)).toHaveLength(2)
    await page.getByText('Values of Steps per minute').click()
    await expectAccessible(page, 'charts')
    await page.reload()
    await page.getByRole('link', { name: '24 hours' }).waitFor()
    expect(page.url()).toBe(`${at.console.url}/charts?range=24h`)
  })
})
