import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { freePort } from '@integration-host/shared/test-support/free-ports'

/**
 * Node stores the compiled code of the console in this folder, as it does in the container image. The second start of
 * the console loads the stored code.
 */
const COMPILE_CACHE = fileURLToPath(new URL('../../node_modules/.compile-cache', import.meta.url))
const MAIN = fileURLToPath(new URL('../../services/console/src/main.ts', import.meta.url))
const SERVICE_KEY = 'a-service-key-of-the-console-benchmark-0123456789'

export interface ConsoleProcess extends AsyncDisposable {
  readonly url: string
  readonly pid: number
  /** The time from the start of the process until it responds, in milliseconds. */
  readonly readyMs: number
  /** Returns a new one-time link with which a person signs in to the console. */
  signInLink(): Promise<string>
}

export interface Peers {
  readonly coordinator: string
  /** The URL of a fake server that responds as token-service and as the gateway. */
  readonly others: string
  /** The service key with which the console calls the coordinator. */
  readonly key?: string
}

/** Starts the console in a separate OS process. Resolves when the console responds. */
export async function startConsoleProcess(peers: Peers): Promise<ConsoleProcess> {
  const port = await freePort()
  const url = `http://127.0.0.1:${port}`
  const key = peers.key ?? SERVICE_KEY
  const startedAt = performance.now()
  const child: ChildProcess = spawn(process.execPath, ['--max-semi-space-size=4', MAIN], {
    stdio: ['ignore', 'ignore', 'inherit'],
    env: {
      NODE_COMPILE_CACHE: COMPILE_CACHE,
      PORT: String(port),
      SIGN_IN: 'link',
      LOG_LEVEL: 'error',
      SERVICE_API_KEY: key,
      COORDINATOR_URL: peers.coordinator,
      TOKEN_SERVICE_URL: peers.others,
      GATEWAY_URL: peers.others,
    },
  })
  const gone = once(child, 'exit')
  while (!(await isUp(url))) await delay(10)
  return {
    url,
    pid: child.pid ?? 0,
    readyMs: performance.now() - startedAt,
    async signInLink() {
      const response = await fetch(`${url}/sign-in-links`, {
        method: 'POST',
        headers: { Authorization: `Bearer ${key}` },
      })
      return ((await response.json()) as { Url: string }).Url
    },
    async [Symbol.asyncDispose]() {
      child.kill('SIGTERM')
      await gone
    },
  }
}

const isUp = (url: string): Promise<boolean> =>
  fetch(`${url}/health/live`).then(
    async (response) => {
      await response.body?.cancel()
      return response.ok
    },
    () => false,
  )
