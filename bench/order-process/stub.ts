/** The HTTP server that the steps call: `GET /order` and `GET /report`, each as cheap as possible. */
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { startNginx } from '../support/nginx.ts'
import { freePort } from '@integration-host/shared/test-support/free-ports'
import { untilListening } from './ports.ts'

const START_MS = 10_000

export interface Stub extends AsyncDisposable {
  readonly program: 'nginx' | 'node'
  readonly url: string
  readonly pid: number
}

/** Uses nginx if it is installed, because nginx needs a tenth of the processor time of a Node server. */
export async function startStub(): Promise<Stub> {
  const hasNginx = spawnSync('nginx', ['-v']).status === 0
  return hasNginx
    ? { program: 'nginx', ...(await startNginx(targets)) }
    : { program: 'node', ...(await startNode()) }
}

const targets = (port: number): string => `
  server {
    listen 127.0.0.1:${port} backlog=4096;
    location = /order { return 201 '{"Order":"$arg_order","CreatedAt":"$time_iso8601"}'; }
    location = /report {
      return 200 '{"Order":"$arg_order","CreatedAt":"$time_iso8601","Status":"Confirmed"}';
    }
  }`

async function startNode(): Promise<Omit<Stub, 'program'>> {
  const port = await freePort()
  const child = spawn(process.execPath, ['-e', `(${serve.toString()})(${port})`], {
    stdio: 'ignore',
  })
  const gone = once(child, 'exit')
  await untilListening(port, START_MS)
  return {
    url: `http://127.0.0.1:${port}`,
    pid: child.pid ?? 0,
    async [Symbol.asyncDispose]() {
      child.kill('SIGTERM')
      await gone
    },
  }
}

/**
 * The source text of this function runs in another process, so the function must not refer to anything outside
 * itself.
 */
function serve(port: number): void {
  const http = process.getBuiltinModule('node:http')
  http
    .createServer((request, response) => {
      const [, name] = /[?&]order=([^&]*)/.exec(request.url ?? '') ?? []
      const isOrder = request.url?.startsWith('/order') === true
      const body = JSON.stringify({
        Order: name,
        CreatedAt: new Date().toISOString(),
        ...(!isOrder && { Status: 'Confirmed' }),
      })
      response.writeHead(isOrder ? 201 : 200, {
        'Content-Type': 'application/json',
        'Content-Length': body.length,
      })
      response.end(body)
    })
    .listen(port, '127.0.0.1')
}
