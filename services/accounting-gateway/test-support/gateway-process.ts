/** Runs the gateway, or a service that it calls, as a separate process. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { expect } from 'vitest'
import { KEY } from './harness.ts'

const MAIN = new URL('../src/main.ts', import.meta.url)
export const SANDBOX_MAIN = new URL('../../sandbox-provider/src/main.ts', import.meta.url)
// Port 1 (tcpmux) has no listener, and the system never assigns it.
export const UNREACHABLE = '127.0.0.1:1'

/** Settings with which the gateway starts while none of its dependencies is available. */
export const nothingReachable = {
  PORT: '0',
  SERVICE_API_KEY: KEY,
  ACCOUNTING_URL: `http://${UNREACHABLE}`,
  TOKEN_SERVICE_URL: `http://${UNREACHABLE}`,
  AMQP_URL: `amqp://${UNREACHABLE}`,
  REDIS_URL: `redis://${UNREACHABLE}`,
}

export interface Running extends AsyncDisposable {
  readonly child: ChildProcess
  output(): string
  url(): Promise<string>
  exit(): Promise<number | null>
}

export function startMain(env: Readonly<Record<string, string>>, main: URL = MAIN): Running {
  const child = spawn(process.execPath, [fileURLToPath(main)], {
    env: { PATH: process.env['PATH'], ...env },
  })
  let output = ''
  child.stdout.on('data', (part: Buffer) => (output += part.toString()))
  child.stderr.on('data', (part: Buffer) => (output += part.toString()))
  const exited = once(child, 'exit').then(([code]) => code as number | null)
  const lines = () =>
    output
      .split('\n')
      .filter((line) => line.startsWith('{'))
      .map((line) => JSON.parse(line) as Record<string, unknown>)
  return {
    child,
    output: () => output,
    url: () =>
      eventually(() => {
        const line = lines().find(({ msg }) => msg === 'service is listening')
        expect(line, output).toBeDefined()
        return String(line?.['url'])
      }),
    exit: () => exited,
    async [Symbol.asyncDispose]() {
      if (child.exitCode === null) child.kill('SIGKILL')
      await exited
    },
  }
}
