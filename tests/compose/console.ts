/** The step of `npm run test:compose` that checks the web console. */
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
