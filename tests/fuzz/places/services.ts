/** All seven services, with a key that may do everything and a session of an operator of the console. */
import { createHmac } from 'node:crypto'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { userLine } from '@integration-host/shared/access/user-line'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { freePort } from '@integration-host/shared/test-support/free-ports'
import { startProcess } from '@integration-host/shared/test-support/start-process'
import { expect } from 'vitest'
import { connectCompany } from '../../support/clients/user-actions.ts'
import { doorsOf } from '../../support/doors/doors.ts'
import { serviceNames, startSystem, type System } from '../../support/system.ts'
import type { ServiceWithDoors } from './routes.ts'

const REALM = '4620816365001'
/** Its process is also started by provider events. */
const PROCESSES = fileURLToPath(new URL('../../support/faults/changes', import.meta.url))
/** The end of the session would make the later requests of the console unauthorized. */
const ENDS_SESSION = ['DELETE /api/session', 'DELETE /api/sessions']

export interface Services extends AsyncDisposable {
  readonly system: System
  readonly all: readonly ServiceWithDoors[]
}

export async function startServices(): Promise<Services> {
  await using opened = new AsyncDisposableStack()
  const system = opened.use(await startSystem([]))
  const names = [...serviceNames, 'webhook-receiver'] as const
  for (const name of names)
    system.start(name, {
      LOG_LEVEL: 'error',
      ...(name === 'coordinator' && {
        PROCESSES,
        TOKEN_SERVICE_URL: system.url('token-service'),
      }),
    })
  await system.ready(...names)
  expect((await connectCompany(system, REALM)).status).toBe(302)
  const users = join(system.dataDir, 'users')
  const password = 'a long password'
  await writeFile(users, `${await userLine('ada', 'operator', password)}\n`)
  const url = `http://127.0.0.1:${await freePort()}`
  const console = opened.use(
    startProcess(['services/console/src/main.ts'], {
      env: {
        LOG_LEVEL: 'error',
        PORT: new URL(url).port,
        SIGN_IN: 'password',
        USERS_FILE: users,
        SERVICE_API_KEY: system.serviceKey,
        TOKEN_SERVICE_URL: system.url('token-service'),
        GATEWAY_URL: system.url('accounting-gateway'),
        COORDINATOR_URL: system.url('coordinator'),
      },
    }),
  )
  await eventually(async () => expect((await fetch(`${url}/health/ready`)).ok).toBe(true))
  const signedIn = await fetch(`${url}/api/session`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Origin: url },
    body: JSON.stringify({ User: 'ada', Password: password }),
  })
  expect(signedIn.status).toBe(200)
  const cookie = signedIn.headers
    .getSetCookie()
    .map((header) => header.split(';')[0])
    .join('; ')

  const known = {
    realm: [REALM],
    realmId: [REALM],
    name: [`ACC-${REALM}`],
    process: ['OrderProcess'],
    Realm: [REALM],
  }
  const authorization = { Authorization: `Bearer ${system.serviceKey}` }
  const all: ServiceWithDoors[] = []
  for (const name of names)
    all.push({
      name,
      url: system.url(name),
      process: system.service(name),
      doors: await doorsOf(system.url(name), known),
      authorization,
      ...(name === 'webhook-receiver' && {
        headersFor: (body) => ({
          'intuit-signature': createHmac('sha256', system.verifierToken)
            .update(body)
            .digest('base64'),
        }),
      }),
    })
  all.push({
    name: 'console',
    url,
    process: console,
    doors: (await doorsOf(url, known)).filter(
      ({ method, path }) => !ENDS_SESSION.includes(`${method} ${path}`),
    ),
    authorization: { Cookie: cookie, Origin: url },
  })
  const running = opened.move()
  return { system, all, [Symbol.asyncDispose]: () => running.disposeAsync() }
}
