/**
 * Tests the actions on a run in the console: confirmations, repeated requests, and what another operator sees of an
 * action.
 */
import type { HeaderStatus } from '@integration-host/shared/contracts/transaction'
import type { Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { expectAccessible } from './accessibility.ts'
import { enter, expectVisibleFocus, focusedText } from './keyboard.ts'
import { type FakeConsole, startFakeConsole } from './fake-console.ts'
import { PROCESS } from './fake-installation.ts'
import { signInAs } from './users.ts'

/** The colour `--bad` of the light theme. */
const RED = 'rgb(179, 38, 30)'

describe('the actions on a run in the console', () => {
  let at: FakeConsole

  beforeAll(async () => {
    at = await startFakeConsole({ SIGN_IN: 'password' }, { ada: 'operator', ben: 'operator' })
  })
  afterAll(() => at?.[Symbol.asyncDispose]())
  afterEach(() => at.endTest())

  /** Adds a run with the given status to the fake coordinator. Signs in as `ada` and opens the page of the run. */
  async function openRun(id: string, status: HeaderStatus, inDoubt = false): Promise<Page> {
    at.fake.add([id], { Status: status, InDoubt: inDoubt })
    return signIn(await at.open(`${at.url}/runs/${PROCESS}/${id}`), 'ada')
  }
  async function signIn(page: Page, name: string): Promise<Page> {
    await signInAs(page, name)
    await page.getByRole('region', { name: 'State' }).waitFor()
    return page
  }
  const dialog = (page: Page) => page.getByRole('dialog')
  const history = (page: Page) => page.getByRole('region', { name: 'Actions on this run' })
  const actedOn = (id: string) => at.fake.acted.filter(({ path }) => path.includes(`/${id}/`))

  it('a person whose password was rejected sees the reason on an accessible page', async () => {
    const page = await at.open(at.url)
    // A person of another name, because the next sign-in of the same name would be delayed by a second.
    await page.getByLabel('User').fill('eve')
    await page.getByLabel('Password').fill('another password')
    await page.getByRole('button', { name: 'Sign in' }).click()
    await page.getByRole('alert').waitFor()
    await expectAccessible(page, 'sign-in-password')
  })

  it.each([
    ['Resume', 'Failed', 'resume', 'the same idempotency keys'],
    ['Retry now', 'Retrying', 'retry', 'does not wait any longer'],
    ['Replay', 'Completed', 'replays', 'new idempotency keys'],
    ['Settle', 'Failed', 'settle', 'whether order has done its work'],
    ['Undo', 'Completed', 'undo', 'the last one first'],
    ['Cancel run', 'Running', 'cancel', 'aborted, and may nevertheless have done its work'],
  ] as const)(
    'the confirmation of %s names the run and the consequence, and the person and the reason are in the log',
    async (verb, status, action, consequence) => {
      const id = `to-${action}`
      const page = await openRun(id, status, action === 'settle')
      await page.getByRole('button', { name: `${verb}…` }).click()
      expect(await dialog(page).getByRole('heading').textContent()).toBe(
        `${verb.replace(' run', '')} run 0 of ${id}?`,
      )
      expect(await dialog(page).textContent()).toContain(consequence)
      if (action === 'settle') await dialog(page).getByLabel('No, run it again').check()
      const need = action === 'settle' ? 'required' : 'optional'
      await dialog(page).getByLabel(`Reason (${need})`).fill(`because of ${action}`)
      const confirm = dialog(page).getByRole('button', { name: verb, exact: true })
      // An action that cannot be taken back has another colour than the others.
      const button = `document.querySelector('dialog button[type=submit]')`
      const colour = await page.evaluate(`getComputedStyle(${button}).backgroundColor`)
      expect(colour === RED).toBe(action === 'cancel' || action === 'undo')
      await confirm.click()
      await dialog(page).waitFor({ state: 'detached' })
      expect(actedOn(id)).toMatchObject([
        { person: 'ada', body: { Reason: `because of ${action}` } },
      ])
      expect(actedOn(id)[0]?.path.endsWith(`/${action}`)).toBe(true)
      await history(page).getByText(`because of ${action}`).waitFor()
      expect(await history(page).textContent()).toContain('ada')
    },
  )

  it.each([
    ['Failed', ['Resume…', 'Replay…']],
    ['Retrying', ['Retry now…', 'Cancel run…']],
  ] as const)(
    'each dialog of a run with the status %s opens and closes by the keyboard, and then its button has the focus again',
    async (status, verbs) => {
      const page = await openRun(`by-key-${status}`, status)
      for (const verb of verbs) {
        await enter(page, page.getByRole('button', { name: verb }))
        await dialog(page).waitFor()
        await page.keyboard.press('Escape')
        await dialog(page).waitFor({ state: 'detached' })
        expect(await focusedText(page)).toBe(verb)
        await expectVisibleFocus(page)
      }
    },
  )

  it('a double click on the confirm button executes an action only once, on a network with a latency of half a second', async () => {
    const page = await openRun('clicked-twice', 'Running')
    const client = await at.context.newCDPSession(page)
    await client.send('Network.emulateNetworkConditions', {
      offline: false,
      latency: 500,
      downloadThroughput: -1,
      uploadThroughput: -1,
    })
    await page.getByRole('button', { name: 'Cancel run…' }).click()
    await dialog(page).getByRole('button', { name: 'Cancel run', exact: true }).dblclick()
    await dialog(page).waitFor({ state: 'detached' })
    await page
      .getByRole('region', { name: 'State' })
      .getByText('Cancelled', { exact: true })
      .waitFor()
    expect(actedOn('clicked-twice')).toHaveLength(1)
  })

  it('an action whose response was lost is executed only once, although the person confirms the action again', async () => {
    const page = await openRun('lost-response', 'Running')
    let responses = 0
    await page.route('**/cancel', async (route) => {
      responses += 1
      if (responses > 1) return route.continue()
      await route.fetch() // the console acts, and the browser gets no response
      return route.abort('connectionreset')
    })
    await page.getByRole('button', { name: 'Cancel run…' }).click()
    const confirm = dialog(page).getByRole('button', { name: 'Cancel run', exact: true })
    await confirm.click()
    await dialog(page).getByRole('alert').getByText('does not respond').waitFor()
    await confirm.click()
    await dialog(page).waitFor({ state: 'detached' })
    expect(responses).toBe(2)
    expect(actedOn('lost-response')).toHaveLength(1)
  })

  it('another operator sees the person and the reason of an action without a reload, and cannot repeat the action', async () => {
    const page = await openRun('of-two', 'Running')
    const other = await at.another()
    const colleague = await signIn(await other.open(page.url()), 'ben')
    await page.getByRole('button', { name: 'Cancel run…' }).click()
    await dialog(page).getByLabel('Reason').fill('ada was first')
    await dialog(page).getByRole('button', { name: 'Cancel run', exact: true }).click()
    await history(colleague).getByText('ada was first').waitFor()
    expect(await history(colleague).textContent()).toContain('ada')
    await colleague
      .getByRole('region', { name: 'State' })
      .getByText('Cancelled', { exact: true })
      .waitFor()
    const again = colleague.getByRole('button', { name: 'Cancel run…' })
    expect(await again.getAttribute('aria-disabled')).toBe('true')
    expect(actedOn('of-two')).toHaveLength(1)
    expect(other.problems).toEqual([])
    await other.context.close()
  })
})
