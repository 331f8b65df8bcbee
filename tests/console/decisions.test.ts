/** Tests in a browser how an operator decides about a run that waits for a decision. */
import type { Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { expectAccessible } from './accessibility.ts'
import { type FakeConsole, startFakeConsole } from './fake-console.ts'
import { PROCESS } from './fake-installation.ts'

const item = {
  StepName: 'approved',
  Status: 'Waiting',
  Attempt: 0,
  IdempotencyKey: 'k',
  ResponseStatus: null,
  ResponseBody: null,
  Data: null,
  Error: null,
  StartedAt: null,
  FinishedAt: null,
  Ask: { title: 'Pay <b>5</b>?', facts: { Bill: 'B-1', Urgent: true } },
} as const

describe('a decision in the console', () => {
  let at: FakeConsole
  let page: Page
  beforeAll(async () => {
    at = await startFakeConsole()
    at.fake.process = {
      Decisions: [{ Event: 'approved', Member: 'approved', Choices: [true, false], HasNote: true }],
    }
    at.fake.add(['bill'], {
      Status: 'Waiting',
      StepName: 'approved',
      WaitingFor: 'event:approved',
      Items: [item],
    })
    page = await at.signIn()
  })
  afterAll(async () => {
    await at?.[Symbol.asyncDispose]()
  })
  afterEach(() => expect(at.problems).toEqual([]))

  it('Now counts the runs that wait for a decision, and the page of a run has the buttons', async () => {
    await page.goto(`${at.url}/`)
    await page.getByText('1 run waits for a decision').waitFor()
    await page.goto(`${at.url}/runs/${PROCESS}/bill`)
    const decision = page.getByRole('region', { name: 'Decision' })
    await decision.getByText('Pay <b>5</b>?').waitFor()
    await decision.getByText('B-1').waitFor()
    await expectAccessible(page, 'run-decision')
    await decision.getByRole('button', { name: 'Yes…' }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByLabel('Note (optional)').fill('as agreed')
    // The note is the reason: two fields for one text would leave a person in doubt.
    expect(await dialog.getByLabel('Reason').count()).toBe(0)
    await dialog.getByRole('button', { name: 'Yes', exact: true }).click()
    await page.getByText('The decision is made.').waitFor()
    expect(at.fake.acted.at(-1)).toMatchObject({
      path: `/processes/${PROCESS}/transactions/bill/events/approved`,
      person: expect.stringMatching(/./),
      body: { Data: { approved: true, note: 'as agreed' } },
    })
    await decision.waitFor({ state: 'detached' })
  })
})
