import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { freePorts } from '@integration-host/shared/test-support/free-ports'
import { untilListening } from './ports.ts'
import type { EngineSettings } from './engine.ts'

const VERSION = '1.7.12'
const START_MS = 60_000

export interface RestateServer extends AsyncDisposable {
  readonly pid: number
  readonly settings: EngineSettings['restate']
}

/**
 * Starts a Restate server for this benchmark. The server has one partition per core. All other settings are Restate's
 * defaults, which include flushing the log to disk.
 */
export async function startRestateServer(): Promise<RestateServer> {
  await using opened = new AsyncDisposableStack()
  const folder = opened.adopt(await mkdtemp(join(tmpdir(), 'integration-host-bench-')), (path) =>
    rm(path, { recursive: true }),
  )
  const [ingress = 0, admin = 0, node = 0, endpointPort = 0] = await freePorts(4)
  const args = ['--no-logo', '--base-dir', folder, '--bind-ip', '127.0.0.1']
  const server = spawn(
    restateProgram(),
    [...args, '--listen-mode', 'tcp', '--bind-port', String(node)],
    {
      env: {
        PATH: process.env['PATH'],
        RESTATE_INGRESS__BIND_PORT: String(ingress),
        RESTATE_ADMIN__BIND_PORT: String(admin),
        RESTATE_DEFAULT_NUM_PARTITIONS: '2',
        RESTATE_DISABLE_TELEMETRY: 'true',
        RESTATE_LOG_FILTER: 'error',
      },
      stdio: 'ignore',
    },
  )
  const gone = once(server, 'exit')
  opened.defer(async () => {
    server.kill('SIGKILL')
    await gone
  })
  const adminUrl = `http://127.0.0.1:${admin}`
  for (const port of [ingress, admin]) await untilListening(port, START_MS)
  // Restate listens before its partitions have elected a leader, so an open port does not prove that Restate is
  // ready.
  for (const until = performance.now() + START_MS; performance.now() < until; await delay(100)) {
    const response = await fetch(`${adminUrl}/health`).catch(() => null)
    await response?.body?.cancel()
    if (response?.ok) break
  }
  const running = opened.move()
  return {
    pid: server.pid ?? 0,
    settings: { ingressUrl: `http://127.0.0.1:${ingress}`, adminUrl, endpointPort },
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  }
}

/**
 * Returns the path of the server binary. The binary is downloaded at the first run, because it has 200 MB and the
 * tests do not need it. The `bin` script of the npm package is not used, because it starts the binary but does not
 * stop it.
 */
function restateProgram(): string {
  const name = `@restatedev/restate-server-${process.platform}-${process.arch}`
  const folder = fileURLToPath(new URL('../out/restate-server', import.meta.url))
  const program = join(folder, 'node_modules', name, 'bin', 'restate-server')
  if (!existsSync(program)) {
    mkdirSync(folder, { recursive: true })
    const args = ['install', '--prefix', folder, '--no-save', '--silent', `${name}@${VERSION}`]
    execFileSync('npm', args, { stdio: ['ignore', 'ignore', 'inherit'] })
  }
  return program
}
