/**
 * Steps of `npm run test:compose` that make mistakes as an operator could. For each mistake, the stack must report
 * the cause and the remedy.
 */
import { once } from 'node:events'
import { createServer } from 'node:net'
import { expect, failureReport } from './check.ts'
import type { Stack } from './stack.ts'

/**
 * Starts the stack with a published port on which another process listens, then again with a free port.
 *
 * @returns Docker's error message from the first start
 */
export async function portTaken(stack: Stack): Promise<string> {
  const other = createServer().listen(0, '127.0.0.1')
  await once(other, 'listening')
  const { port } = other.address() as { port: number }
  const start = ['up', '--wait', '--no-deps', 'ingress']
  const { code, text } = await stack.tryCompose(start, { COORDINATOR_PORT: String(port) })
  other.close()
  const report = text.split('\n').find((line) => line.includes(`127.0.0.1:${port}`)) ?? ''
  expect(code !== 0 && /in use|allocated/.test(report), `the output was: ${text}`)
  await stack.compose(start)
  return report.replace(/^.*?(?=listen|Bind)/, '')
}

/**
 * Makes root the owner of all files in the volumes, as the restoration of a backup may do. Checks that `init`
 * corrects the owners and modes.
 */
export async function wrongOwners(stack: Stack): Promise<void> {
  await shell(
    stack,
    'chown -R 0:0 /volumes/*-data /volumes/service-keys && chmod 444 /volumes/*-secrets/* /volumes/service-keys/*',
  )
  const { code, text } = await stack.init()
  expect(code === 0, text)
  const owners = await shell(
    stack,
    'find /volumes/*-data /volumes/service-keys -user root; find /volumes/*-secrets /volumes/service-keys/*.json -type f -perm /077',
  )
  expect(!owners.includes('/volumes/'), `wrong owner or mode: ${owners}`)
}

/**
 * Replaces the service key with a key that is too short.
 *
 * @returns the error message of `init`
 */
export async function shortSecret(stack: Stack): Promise<string> {
  const key = '/volumes/service-secrets/service_api_key'
  await shell(stack, `cp ${key} ${key}.kept && printf short > ${key}`)
  const report = failureReport(
    await stack.init(),
    'service_api_key must have 32',
    'from your backup',
  )
  await shell(stack, `mv ${key}.kept ${key}`)
  return report
}

/**
 * Deletes secrets that are needed to read the existing data.
 *
 * @returns the error message of `init`
 */
export async function passwordGone(stack: Stack): Promise<string> {
  const names = ['postgres-secrets/password', 'service-secrets/credential_keys']
  await shell(stack, names.map((name) => `mv /volumes/${name} /volumes/${name}.kept`).join(' && '))
  const report = failureReport(
    await stack.init(),
    ...names.map((name) => `${name} is missing`),
    'down --volumes',
  )
  await shell(stack, names.map((name) => `mv /volumes/${name}.kept /volumes/${name}`).join(' && '))
  return report
}

/** Deletes only the database volume. The stack must start with its existing secrets and create an empty database. */
export async function databaseGone(stack: Stack): Promise<void> {
  await stack.docker(['volume', 'rm', `${stack.project}_postgres-data`])
  await stack.compose(['up', '--wait', 'coordinator'])
}

/** Runs a script in the container of `init`, which mounts all volumes and runs as root. */
async function shell(stack: Stack, script: string): Promise<string> {
  const { code, text } = await stack.init('sh', '-c', script)
  expect(code === 0, text)
  return text
}
