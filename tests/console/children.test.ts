/** Tests in a real browser how the console shows runs that have children. */
import { fileURLToPath } from 'node:url'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest'
import { expectAccessible } from './accessibility.ts'
import { type ConsoleBrowser, startConsoleBrowser } from './console-browser.ts'

const PROCESSES = fileURLToPath(new URL('family-processes', import.meta.url))
/** So long that the ids of the children are shortened. */
const LONG = 'p'.repeat(120)

let at: ConsoleBrowser
beforeAll(async () => {
  at = await startConsoleBrowser({ PROCESSES })
  await ended('b', 0, { TransactionID: 'b', InitialData: [1, 2, 3] })
  await ended('b', 1, {}, '/b/replays')
  await ended(LONG, 0, { TransactionID: LONG, InitialData: [1] })
}, 120_000)
afterAll(() => at?.[Symbol.asyncDispose]())
afterEach(() => at.endTest())

async function ended(id: string, replay: number, body: object, path = ''): Promise<void> {
  const list = `${at.host.coordinator}/processes/Batch/transactions`
  expect((await at.request(list + path, body)).status).toBe(202)
  await eventually(async () => {
    const run = await (await at.request(`${list}/${id}?replay=${replay}`)).json()
    expect(run).toMatchObject({ CompletedAt: expect.any(String) })
  })
}

it('a run shows its children as counts that lead to their list, and a child leads to its parent', async () => {
  const page = await at.signIn()
  await page.goto(`${at.console.url}/runs/Batch/b`)
  await page.getByText('Children of lines').waitFor()
  await page.getByText(', 1 not completed').waitFor()
  await expectAccessible(page, 'run-with-children')
  await page.getByRole('link', { name: '2 of 3 completed' }).click()
  // The latest run of the transaction is a replay, which has children of its own.
  await page.getByRole('link', { name: 'b~1/Batch.lines/2' }).waitFor()
  expect(await page.getByRole('link', { name: /^b.*Batch\.lines/ }).allTextContents()).toHaveLength(
    3,
  )
  await page.getByRole('link', { name: 'b~1/Batch.lines/2' }).click()
  await page.getByText('Child of').waitFor()
  await page.getByRole('link', { name: 'b', exact: true }).click()
  await page.getByText('Children of lines').waitFor()
})

it('children with shortened ids are listed as well, and lists hide children', async () => {
  const page = await at.signIn()
  await page.goto(`${at.console.url}/runs/Batch/${LONG}`)
  await page.getByRole('link', { name: '1 of 1 completed' }).click()
  await page.getByRole('link', { name: /^p{40}~[\da-f]{20}\/1$/ }).waitFor()
  await page.goto(`${at.console.url}/runs`)
  await page.getByRole('link', { name: 'b', exact: true }).first().waitFor()
  expect(await page.getByRole('link', { name: /lines|~/ }).count()).toBe(0)
})
