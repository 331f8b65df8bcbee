/** Starts the gateway as a separate process. */
import { fileURLToPath } from 'node:url'
import {
  listeningUrl,
  type StartedProcess,
  startProcess,
} from '@integration-host/shared/test-support/start-process'
import { KEY } from './fake-servers.ts'

const MAIN = new URL('../src/main.ts', import.meta.url)
// Port 1 (tcpmux) has no listener, and the operating system never assigns it to a client.
export const UNREACHABLE = '127.0.0.1:1'

/** Valid settings with unreachable addresses for all dependencies. */
export const nothingReachable = {
  PORT: '0',
  SERVICE_API_KEY: KEY,
  ACCOUNTING_URL: `http://${UNREACHABLE}`,
  TOKEN_SERVICE_URL: `http://${UNREACHABLE}`,
  AMQP_URL: `amqp://${UNREACHABLE}`,
  REDIS_URL: `redis://${UNREACHABLE}`,
}

export interface Running extends StartedProcess {
  /** Resolves with the base URL of the process as soon as the process listens. */
  url(): Promise<string>
}

export function startMain(env: Readonly<Record<string, string>>): Running {
  const started = startProcess([fileURLToPath(MAIN)], { env })
  return { ...started, url: () => listeningUrl(started) }
}
