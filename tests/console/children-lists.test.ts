/** Tests in a browser that the lists of runs have the children that a number counts. */
import type { Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { expectAccessible } from './accessibility.ts'
import { type FakeConsole, startFakeConsole } from './fake-console.ts'
import { PROCESS } from './fake-installation.ts'

describe('a run whose children have failed', () => {
  let at: FakeConsole
  let page: Page
  beforeAll(async () => {
    at = await startFakeConsole()
    at.fake.add(['import'], {
      Status: 'Failed',
      StepName: 'lines',
      ErrorClass: 'children_failed',
      Children: [
        {
          Place: 'lines',
          Process: PROCESS,
          Total: 7,
          Completed: 5,
          Active: 0,
          Waiting: 0,
          Failed: 2,
          Tolerated: 0,
          Concurrent: null,
          IdPrefix: 'import/',
          IsLoaded: true,
        },
      ],
    })
    page = await at.signIn()
  })
  afterAll(() => at?.[Symbol.asyncDispose]())
  afterEach(() => expect(at.problems).toEqual([]))

  it('the page of the run leads to the children that were not completed, and the list says that it has children', async () => {
    await page.goto(`${at.url}/runs/${PROCESS}/import`)
    await page.getByRole('link', { name: '5 of 7 completed' }).waitFor()
    await expectAccessible(page, 'run-children')
    await page.getByRole('link', { name: '2 not completed' }).click()
    await page.getByRole('button', { name: 'With children' }).waitFor()
    const { searchParams } = new URL(page.url())
    expect([...searchParams]).toEqual([
      ['status', 'Failed'],
      ['status', 'Cancelled'],
      ['status', 'UndoFailed'],
      ['status', 'Undone'],
      ['children', 'true'],
      ['process', PROCESS],
      ['idPrefix', 'import/'],
    ])
  })

  it('the card of failed runs leads to a list that has the children, because it counts them', async () => {
    await page.goto(`${at.url}/`)
    const card = page.getByRole('listitem').filter({ hasText: 'too many of its children' })
    await card.getByRole('link', { name: 'Show', exact: true }).click()
    await page.getByRole('link', { name: 'import', exact: true }).waitFor()
    expect(await page.getByRole('button', { name: 'With children' }).count()).toBe(1)
  })

  it('the page of a process shows its latest runs with the children, because it may have no other runs', async () => {
    const read = page.waitForRequest(/\/api\/runs\?.*limit=/)
    await page.goto(`${at.url}/processes/${PROCESS}`)
    expect(new URL((await read).url()).searchParams.get('children')).toBe('true')
    await page.getByRole('region', { name: 'Latest runs' }).getByText('import').waitFor()
    await page.getByRole('link', { name: 'All runs' }).click()
    await page.getByRole('button', { name: 'With children' }).waitFor()
  })
})
