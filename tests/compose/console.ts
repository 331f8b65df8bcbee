/** The steps of `npm run test:compose` that check the web console. */
import { chromium } from 'playwright-core'
import { chromiumProgram } from '../support/backends/server-binaries.ts'
import { expect } from './check.ts'
import type { Stack } from './stack.ts'

/** Checks that the password in the console's volume signs in, and that the pages then show the services. */
export async function signsInToConsole(stack: Stack): Promise<void> {
  const url = stack.at('CONSOLE_PORT')
  const Password = (await stack.read('console', '/secrets/console_password')).trim()
  const post = (body: object): Promise<Response> =>
    fetch(`${url}/api/session`, {
      method: 'POST',
      headers: { Origin: url, 'Content-Type': 'application/json' },
      body: JSON.stringify(body),
    })
  const accepted = await post({ User: 'operator', Password })
  expect(accepted.status === 200, `the password of the volume gets ${accepted.status}`)
  const wrong = await post({ User: 'operator', Password: `${Password}x` })
  expect(wrong.status === 401, `a wrong password gets ${wrong.status}`)
  const [cookie = ''] = accepted.headers.getSetCookie()
  const companies = await fetch(`${url}/api/companies`, {
    headers: { Origin: url, Cookie: cookie.split(';')[0] ?? '' },
  })
  expect(companies.status === 200, `the companies get ${companies.status}`)
  const shell = await (await fetch(url)).text()
  const script = /src="([^"]+)"/.exec(shell)?.[1] ?? ''
  expect((await fetch(url + script)).ok, 'the image has no program for browsers')
}

/**
 * Signs in at the console with a browser, looks at a run that `npm run demo` has queued, and replays it. Returns what the
 * pages have shown, or why there is no browser.
 */
export async function operatesConsole(stack: Stack, transactionId: string): Promise<string> {
  const executablePath = process.env['CONSOLE_TEST_BROWSER'] ?? (await chromiumProgram())
  if (executablePath === null) return 'not run, because there is no Chromium'
  const url = stack.at('CONSOLE_PORT')
  const password = (await stack.read('console', '/secrets/console_password')).trim()
  const browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] })
  try {
    const page = await browser.newPage()
    page.setDefaultTimeout(60_000)
    const problems: string[] = []
    page.on('pageerror', (error) => problems.push(error.message))
    page.on('console', (message) => {
      if (/Content Security Policy|Trusted/i.test(message.text())) problems.push(message.text())
    })
    // At the address of the run, the console first shows the sign-in page. After the sign-in, it shows the run.
    await page.goto(`${url}/runs/OrderProcess/${transactionId}`)
    await page.getByLabel('User').fill('operator')
    await page.getByLabel('Password').fill(password)
    await page.getByRole('button', { name: 'Sign in' }).click()
    const status = page
      .getByRole('region', { name: 'State' })
      .getByText('Completed', { exact: true })
    await status.waitFor()
    await page.getByRole('button', { name: 'Replay…' }).click()
    await page.getByLabel('Reason').fill('test of the compose stack')
    await page.getByRole('button', { name: 'Replay', exact: true }).click()
    await page.waitForURL(/[?&]run=\d+/)
    await status.waitFor()
    await page.getByText('test of the compose stack', { exact: true }).waitFor()

    await page.goto(`${url}/services`)
    const replicas: string[] = []
    for (const [service, expected] of [
      ['coordinator', 3],
      ['token-service', 2],
      ['accounting-gateway', 2],
    ] as const) {
      const rows = page.getByRole('row').filter({ has: page.getByText(service, { exact: true }) })
      await rows
        .getByText('Ready', { exact: true })
        .nth(expected - 1)
        .waitFor()
      replicas.push(`${expected} × ${service}`)
    }
    expect(problems.length === 0, `the browser reports: ${problems.join('; ')}`)
    return `${replicas.join(', ')} ready`
  } finally {
    await browser.close()
  }
}
