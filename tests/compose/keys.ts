/** Steps of `npm run test:compose` that check the keys of callers (docs/access.md). */
import { startProcess } from '@integration-host/shared/test-support/start-process'
import { expect, until } from './check.ts'
import { type Stack, words } from './stack.ts'

const SERVICES = ['token-service', 'accounting-gateway', 'coordinator'] as const
const PORTS = { 'token-service': 7217, 'accounting-gateway': 7218, coordinator: 7219 } as const

/** Runs the CLI in the Compose stack in the way docs/running.md shows, and returns its output. */
const cli = (stack: Stack, ...args: readonly string[]): Promise<string> =>
  stack.compose([...words('run --rm -T cli'), ...args])

interface Call {
  readonly method?: 'POST'
  readonly body?: object
}

/** Returns the status of a request and the problem that the response describes. */
async function call(url: string, key: string, { method, body }: Call = {}): Promise<string> {
  const response = await fetch(url, {
    ...(method !== undefined && { method }),
    headers: { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  })
  const { code, scope } = (await response.json().catch(() => ({}))) as {
    readonly code?: string
    readonly scope?: string
  }
  return [response.status, code, scope].filter(Boolean).join(' ')
}

/**
 * Checks the permissions of the keys that `init` creates. An application may queue and read transactions and call the
 * accounting API. An operator may operate the installation. Neither of them may read a token or move a grant.
 */
export async function keysAreBounded(stack: Stack, realm: string): Promise<void> {
  const at = await stack.installation()
  const application = at.serviceKey
  const operator = await stack.heldKey('operator')
  const demo = await stack.read('demo-api', '/secrets/demo_api_key')
  const company = `${at.accountingGateway}/v3/company/${realm}/query?query=select%20*%20from%20CompanyInfo`
  const credential = `${at.tokenService}/credentials/ACC-${realm}`
  const orders = `${at.coordinator}/processes/OrderProcess/transactions`
  const order = { TransactionID: 'keys', InitialData: 'keys' }
  const exported = { method: 'POST', body: { Names: [`ACC-${realm}`] } } as const
  const cases: readonly (readonly [who: string, key: string, url: string, Call, status: string])[] =
    [
      ['application', application, company, {}, '200'],
      ['application', application, credential, {}, '200'],
      ['application', application, orders, { method: 'POST', body: order }, '202'],
      ['application', application, `${orders}/keys`, {}, '200'],
      [
        'application',
        application,
        `${at.tokenService}/exports`,
        exported,
        '403 forbidden custody:transfer',
      ],
      ['application', application, `${credential}/token`, {}, '403 forbidden credentials:token'],
      [
        'application',
        application,
        `${orders}/keys/cancel`,
        { method: 'POST', body: {} },
        '403 forbidden transactions:operate',
      ],
      ['application', application, `${at.tokenService}/audit`, {}, '403 forbidden audit:read'],
      ['operator', operator, `${at.tokenService}/audit`, {}, '200'],
      ['operator', operator, `${orders}/keys`, {}, '200'],
      [
        'operator',
        operator,
        `${at.tokenService}/exports`,
        exported,
        '403 forbidden custody:transfer',
      ],
      ['operator', operator, `${credential}/token`, {}, '403 forbidden credentials:token'],
      ['demo-api', demo, `${orders}/keys`, {}, '403 forbidden transactions:read'],
      ['demo-api', demo, credential, {}, '403 forbidden credentials:read'],
      ['demo-api', demo, `${at.tokenService}/exports`, exported, '403 forbidden custody:transfer'],
    ]
  for (const [who, key, url, request, wanted] of cases) {
    const got = await call(url, key, request)
    const path = `${request.method ?? 'GET'} ${new URL(url).pathname}`
    expect(got === wanted, `${path} with the key ${who} yields ${got}, not ${wanted}`)
  }
  const list = await cli(stack, 'keys', 'list')
  for (const id of ['application', 'operator', 'demo-api'])
    expect(new RegExp(`^${id} `, 'm').test(list), `keys list prints ${list}`)
}

/**
 * Creates a key, waits until every replica of every service accepts it, revokes it, and waits until every replica
 * rejects it. Measures in each container how long the key was still accepted after the change of the file. A service
 * checks its file twice a second, but the duration has no limit here: on a busy machine the measurement is delayed, too.
 *
 * @returns the longest of these durations
 */
export async function revokedEverywhere(stack: Stack): Promise<string> {
  const made = await cli(
    stack,
    ...words('keys new --id revoked --scope credentials:read,transactions:read,gateway:read'),
    ...words('--realm * --process *'),
  )
  const key = /ihk_[\w-]{43}/.exec(made)?.[0] ?? ''
  expect(key !== '', 'keys new prints no key')
  await using watchers = new AsyncDisposableStack()
  const replicas = []
  for (const service of SERVICES)
    for (const container of await stack.containers(service))
      replicas.push(
        watchers.use(
          startProcess(
            ['exec', '--env', `KEY=${key}`, container, 'node', '--eval', watching(PORTS[service])],
            { program: 'docker', env: { DOCKER_HOST: process.env['DOCKER_HOST'] } },
          ),
        ),
      )
  expect(replicas.length >= 7, `there are ${replicas.length} replicas`)
  await Promise.all(replicas.map((replica) => replica.waitForOutput(/accepted/)))
  await cli(stack, ...words('keys revoke --id revoked'))
  const delays = await Promise.all(
    replicas.map(async (replica) => Number((await replica.waitForOutput(/rejected (\d+)/))[1])),
  )
  return `after ${Math.max(...delays)} ms at most, ${replicas.length} replicas`
}

/**
 * A program for a service's container. It prints `accepted` when the service accepts the key, and later `rejected` with
 * the milliseconds from the change of the key file to the first rejection. A key is rejected if the status is 401, and
 * accepted for any other status.
 */
const watching = (port: number): string => `
  const { statSync } = require('node:fs')
  const valid = async () => {
    const headers = { Authorization: 'Bearer ' + process.env.KEY }
    const response = await fetch('http://127.0.0.1:${port}/nothing', { headers })
    await response.text()
    return response.status !== 401
  }
  const until = async (wanted) => {
    while (await valid() !== wanted) await new Promise((resolve) => setTimeout(resolve, 20))
  }
  until(true).then(() => {
    console.log('accepted')
    return until(false)
  }).then(() => {
    console.log('rejected ' + Math.round(Date.now() - statSync('/keys/service_keys.json').mtimeMs))
  })`

/**
 * Checks that services accept a key that an operator creates, and that the error of a command names a missing scope.
 */
export async function operatorsMakeKeys(stack: Stack, realm: string): Promise<void> {
  const listed = await cli(stack, 'credentials', 'list')
  expect(listed.includes(`ACC-${realm}`), `credentials list prints ${listed}`)
  const rotate = words('run --rm -T cli credentials rotate-keys')
  const { code, text } = await stack.tryCompose(rotate)
  expect(code === 5 && text.includes('custody:transfer'), `exit code ${code}: ${text}`)
  const made = await cli(
    stack,
    ...words('keys new --id custody --scope custody:transfer --realm * --expires 1h'),
  )
  const key = /ihk_[\w-]{43}/.exec(made)?.[0] ?? ''
  const withKey = words('run --rm -T -e SERVICE_API_KEY_FILE= -e SERVICE_API_KEY')
  await until('token-service accepts the new key', async () => {
    const args = [...withKey, ...words('cli credentials rotate-keys')]
    return (await stack.tryCompose(args, { SERVICE_API_KEY: key })).code === 0
  })
  await cli(stack, ...words('keys revoke --id custody'))
}
