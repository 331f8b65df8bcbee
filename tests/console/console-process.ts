/** A console in a process of its own, with its usual intervals, as in an installation. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { freePort } from '@integration-host/shared/test-support/free-ports'
import { KEYS } from './fake-console.ts'

const MAIN = fileURLToPath(new URL('../../services/console/src/main.ts', import.meta.url))

export interface ConsoleProcess extends AsyncDisposable {
  readonly url: string
  /** Ends the process without a shutdown. */
  kill(): Promise<void>
}

/** Starts a console whose services all have the address `servicesUrl`, and waits until it responds. */
export async function startConsoleProcess(
  servicesUrl: string,
  env: Readonly<Record<string, string>>,
  port?: number,
): Promise<ConsoleProcess> {
  const at = port ?? (await freePort())
  const child = spawn(process.execPath, [MAIN], {
    stdio: 'ignore',
    env: {
      ...KEYS,
      PORT: String(at),
      SIGN_IN: 'password',
      COORDINATOR_URL: servicesUrl,
      TOKEN_SERVICE_URL: servicesUrl,
      GATEWAY_URL: servicesUrl,
      ...env,
    },
  })
  const exited = once(child, 'exit')
  async function kill(): Promise<void> {
    child.kill('SIGKILL')
    await exited
  }
  try {
    await eventually(async () => {
      if (child.exitCode !== null) throw new Error(`the console has ended with ${child.exitCode}`)
      const { ok } = await fetch(`http://127.0.0.1:${at}/health/ready`)
      if (!ok) throw new Error('the console is not ready')
    })
  } catch (error) {
    await kill()
    throw error
  }
  return { url: `http://127.0.0.1:${at}`, kill, [Symbol.asyncDispose]: kill }
}
