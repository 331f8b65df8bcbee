/** Tests the pages that token-service, the coordinator and the sandbox provider send, in a real browser. */
import { fileURLToPath } from 'node:url'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { DecisionLink } from '@integration-host/shared/contracts/decision'
import type { RunDetailResponse } from '@integration-host/shared/contracts/run'
import type { Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { expectAccessible } from './accessibility.ts'
import { type ConsoleBrowser, startConsoleBrowser } from './console-browser.ts'

const COLOURS = ['ground', 'surface', 'line', 'text', 'muted', 'accent', 'on-accent', 'bad']

describe('the HTML pages of token-service, the coordinator and the sandbox provider', () => {
  let at: ConsoleBrowser

  beforeAll(async () => {
    const processes = new URL('decision-processes', import.meta.url)
    at = await startConsoleBrowser({ PROCESSES: fileURLToPath(processes) })
  })
  afterAll(() => at?.[Symbol.asyncDispose]())

  /** Opens a URL, and checks that the page loads no further resources. */
  async function open(url: string): Promise<Page> {
    const page = await at.context.newPage()
    const requests: string[] = []
    page.on('request', (request) => requests.push(request.url()))
    page.on('console', (message) => {
      if (message.text().includes('Content Security Policy')) at.problems.push(message.text())
    })
    await page.goto(url)
    expect(requests.map((one) => new URL(one).origin)).toEqual([new URL(page.url()).origin])
    return page
  }

  async function connectLink(): Promise<string> {
    const response = await at.request(`${at.host.tokenService}/connect-links`, {
      label: 'Rosewood Interiors & Sons',
    })
    return ((await response.json()) as { url: string }).url
  }

  it.each([
    ['connected', 'Connected', '/connected?name=ACC-4620816365291'],
    ['disconnected', 'Disconnected', '/disconnected?realmId=4620816365291'],
    ['reconnect', 'Connect your company', '/reconnect'],
    ['connect-unknown', 'The connect link cannot be used', `/connect/${'x'.repeat(43)}`],
  ])(
    'the page %s is accessible in the light and the dark theme at three widths',
    async (name, title, path) => {
      const page = await open(at.host.tokenService + path)
      expect(await page.getByRole('heading', { level: 1 }).textContent()).toContain(title)
      await expectAccessible(page, `small-${name}`)
      await page.close()
    },
  )

  it('the page of a connect link leads to the consent page of the sandbox, which names the companies', async () => {
    const page = await open(await connectLink())
    await page.getByText('Rosewood Interiors & Sons').waitFor()
    await expectAccessible(page, 'small-connect')
    await page.getByRole('button', { name: 'Connect' }).click()
    await page.getByRole('heading', { name: 'Connect a company' }).waitFor()
    await expectAccessible(page, 'small-consent')
    await page.keyboard.press('Tab')
    expect(await page.evaluate('document.activeElement.type')).toBe('radio')
    const realm = page.getByLabel('Realm id')
    expect(await realm.isVisible()).toBe(false)
    await page.getByLabel('Another one').check()
    expect(await realm.isVisible()).toBe(true)
    await page.getByLabel('Northwind Trading').check()
    await page.getByRole('button', { name: 'Connect' }).click()
    await page.getByRole('heading', { name: 'Connected' }).waitFor()
    await page.close()
  })

  const runs = () => `${at.host.coordinator}/processes/ApproveBill/transactions`
  const decisionOf = async (id: string): Promise<unknown> => {
    const run = (await (await at.request(`${runs()}/${id}`)).json()) as RunDetailResponse
    const { Data, Sender } = run.Items.find(({ StepName }) => StepName === 'approved') ?? {}
    return [run.Status, Data, Sender?.Person]
  }
  const queueBill = (id: string) => at.request(runs(), { TransactionID: id, InitialData: null })

  it('a person decides on a phone without JavaScript, on an accessible page', async () => {
    await queueBill('1')
    const links = `${runs()}/1/events/approved/links`
    const created = await at.request(links, { For: 'ada@example.com' })
    const { Url } = DecisionLink.parse(await created.json())
    await eventually(async () => expect(await (await fetch(Url)).text()).toContain('Pay 12,000?'))
    const page = await open(Url)
    await expectAccessible(page, 'small-decision')
    await page.close()
    const viewport = { width: 360, height: 640 }
    const phone = await at.context.browser()?.newContext({ javaScriptEnabled: false, viewport })
    const small = await phone?.newPage()
    await small?.goto(Url)
    await small?.getByLabel('Note (optional)').fill('as agreed')
    await small?.getByRole('button', { name: 'Yes' }).click()
    await small?.getByText('ada@example.com has chosen “Yes”').waitFor()
    await phone?.close()
    const data = { approved: true, note: 'as agreed' }
    await eventually(async () =>
      expect(await decisionOf('1')).toEqual(['Completed', data, 'ada@example.com']),
    )
  })

  it('an operator decides in the console, under the name of the operator', async () => {
    await queueBill('2')
    const page = await at.signIn()
    await page.getByText('1 run waits for a decision').waitFor()
    await page.goto(`${at.console.url}/runs/ApproveBill/2`)
    await page.getByRole('button', { name: 'No…' }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'No', exact: true }).click()
    await page.getByText('The decision is made.').waitFor()
    await page.close()
    const person = expect.stringMatching(/./)
    await eventually(async () =>
      expect(await decisionOf('2')).toEqual(['Completed', { approved: false }, person]),
    )
  })

  it('the HTML pages of the services have the colours of the console in the light and the dark theme', async () => {
    const small = await open(`${at.host.tokenService}/connected`)
    const large = await at.signIn()
    for (const colorScheme of ['light', 'dark'] as const)
      for (const colour of COLOURS) {
        const resolved = async (page: Page): Promise<string> => {
          await page.emulateMedia({ colorScheme })
          return page.evaluate(
            `(() => { document.body.style.color = 'var(--${colour})'; return getComputedStyle(document.body).color })()`,
          )
        }
        expect(await resolved(small), `${colour} ${colorScheme}`).toBe(await resolved(large))
      }
  })

  it('no HTML page of the services violates its Content-Security-Policy', () => {
    expect(at.problems).toEqual([])
  })
})
