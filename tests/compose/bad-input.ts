/** What goes wrong for people who run the stack, and what they are told. */
import { once } from 'node:events'
import { createServer } from 'node:net'
import { expect, refusal } from './check.ts'
import type { Stack } from './stack.ts'

/** @returns the message */
export async function portTaken(stack: Stack): Promise<string> {
  const other = createServer().listen(0, '127.0.0.1')
  await once(other, 'listening')
  const { port } = other.address() as { port: number }
  const start = ['up', '--wait', '--no-deps', 'ingress']
  const { code, text } = await stack.tryCompose(start, { COORDINATOR_PORT: String(port) })
  other.close()
  const told = text.split('\n').find((line) => line.includes(`127.0.0.1:${port}`)) ?? ''
  expect(code !== 0 && /in use|allocated/.test(told), `it said: ${text}`)
  await stack.compose(start)
  return told.replace(/^.*?(?=listen|Bind)/, '')
}

/** Volumes as after a restore by root. */
export async function wrongOwners(stack: Stack): Promise<void> {
  await shell(stack, 'chown -R 0:0 /volumes/*-data && chmod 444 /volumes/*-secrets/*')
  const { code, text } = await stack.init()
  expect(code === 0, text)
  const owners = await shell(
    stack,
    'find /volumes/*-data -user root; find /volumes/*-secrets -type f -perm /077',
  )
  expect(!owners.includes('/volumes/'), `not mended: ${owners}`)
}

/** @returns the message */
export async function shortSecret(stack: Stack): Promise<string> {
  const key = '/volumes/service-secrets/service_api_key'
  await shell(stack, `cp ${key} ${key}.kept && printf short > ${key}`)
  const told = refusal(await stack.init(), 'service_api_key must have 32', 'from your backup')
  await shell(stack, `mv ${key}.kept ${key}`)
  return told
}

/** @returns the message */
export async function passwordGone(stack: Stack): Promise<string> {
  const names = ['postgres-secrets/password', 'service-secrets/credential_keys']
  await shell(stack, names.map((name) => `mv /volumes/${name} /volumes/${name}.kept`).join(' && '))
  const told = refusal(
    await stack.init(),
    ...names.map((name) => `${name} is gone`),
    'down --volumes',
  )
  await shell(stack, names.map((name) => `mv /volumes/${name}.kept /volumes/${name}`).join(' && '))
  return told
}

export async function databaseGone(stack: Stack): Promise<void> {
  await stack.docker(['volume', 'rm', `${stack.project}_postgres-data`])
  await stack.compose(['up', '--wait', 'coordinator'])
}

/** Runs a script with the rights of `init`, where all volumes are. */
async function shell(stack: Stack, script: string): Promise<string> {
  const { code, text } = await stack.init('sh', '-c', script)
  expect(code === 0, text)
  return text
}
