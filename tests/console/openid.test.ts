/** Tests the sign-in at an OpenID provider of another site, in a real browser. */
import {
  CLIENT_ID,
  CLIENT_SECRET,
  startTestProvider,
  type TestProvider,
} from '@integration-host/shared/test-support/openid-provider'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { expectAccessible } from './accessibility.ts'
import { type ConsoleBrowser, startConsoleBrowser } from './console-browser.ts'

describe('the sign-in to the console at an OpenID provider', () => {
  let provider: TestProvider
  let at: ConsoleBrowser

  beforeAll(async () => {
    provider = await startTestProvider('client_secret_post', 'localhost')
    at = await startConsoleBrowser(
      {
        SIGN_IN: 'link,oidc',
        OIDC_ISSUER: provider.issuer,
        OIDC_CLIENT_ID: CLIENT_ID,
        OIDC_CLIENT_SECRET: CLIENT_SECRET,
        OIDC_OPERATORS: 'ada@example.com',
        OIDC_VIEWERS: 'group:support',
      },
      {},
      () => ({
        'of the client': CLIENT_SECRET,
        ...Object.fromEntries(
          provider.secrets.map((secret, index) => [`${index} of the OpenID provider`, secret]),
        ),
      }),
    )
  })
  afterAll(async () => {
    await at?.[Symbol.asyncDispose]()
    await provider?.[Symbol.asyncDispose]()
  })
  afterEach(() => at.endTest())

  it('the OpenID sign-in leads back to the requested page, and the browser sends the session cookie with the next request', async () => {
    provider.signInAs({ email: 'ada@example.com', email_verified: true })
    const page = await at.open('/runs?status=Failed')
    const link = page.getByRole('link', { name: 'Sign in at localhost' })
    await link.waitFor()
    await expectAccessible(page, 'sign-in-oidc')
    await link.click()
    await page.getByRole('heading', { name: 'Runs', exact: true }).waitFor()
    expect(page.url()).toBe(`${at.console.url}/runs?status=Failed`)
    await page.getByRole('button', { name: 'ada@example.com' }).waitFor()
    const cookies = await at.context.cookies(at.console.url)
    expect(cookies).toMatchObject([{ name: 'console', sameSite: 'Strict', httpOnly: true }])
    for (const secret of provider.secrets) expect(page.url() + at.log()).not.toContain(secret)
  })

  it('the page lets the provider confirm the session by itself, and shows the same page afterwards', async () => {
    provider.signInAs({ email: 'ada@example.com', email_verified: true })
    const page = await at.context.newPage()
    await page.clock.install()
    await page.goto(`${at.console.url}/runs?status=Failed`)
    await page.getByRole('link', { name: 'Sign in at localhost' }).click()
    await page.getByRole('heading', { name: 'Runs', exact: true }).waitFor()
    const silent = page.waitForRequest((request) => request.url().includes('prompt=none'))
    const [before] = await at.context.cookies(at.console.url)
    await page.clock.fastForward('11:00')
    await page.keyboard.press('Shift') // a person uses the page
    await page.clock.fastForward('00:30')
    await silent
    await page.getByRole('heading', { name: 'Runs', exact: true }).waitFor()
    expect(page.url()).toBe(`${at.console.url}/runs?status=Failed`)
    const [after] = await at.context.cookies(at.console.url)
    expect(after?.value).toBe(before?.value)
  })

  it('a signed-in person who follows a link from another site to the console need not sign in again', async () => {
    provider.signInAs({ groups: ['support'] })
    const page = await at.open('/')
    await page.getByRole('link', { name: 'Sign in at localhost' }).click()
    await page.getByRole('button', { name: 'oidc:subject-1' }).waitFor()
    const other = await at.context.newPage()
    await other.goto(`${provider.issuer}/jwks`)
    await other.evaluate(
      `document.body.innerHTML = '<a href="${at.console.url}/companies">look here</a>'`,
    )
    await other.getByRole('link', { name: 'look here' }).click()
    await other.getByRole('heading', { name: 'Companies', exact: true }).waitFor()
    expect(other.url()).toBe(`${at.console.url}/companies`)
  })

  it('a person who may not use the console sees the reason after the OpenID sign-in', async () => {
    provider.signInAs({ email: 'mallory@example.com', email_verified: true })
    const page = await at.open('/')
    await page.getByRole('link', { name: 'Sign in at localhost' }).click()
    await page.getByText('This account may not use the console').waitFor()
    await expectAccessible(page, 'sign-in-rejected')
    await page.getByRole('link', { name: 'Try again' }).click()
    await page.getByRole('heading', { name: 'Sign in', exact: true }).waitFor()
  })
})
