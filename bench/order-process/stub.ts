/** What the steps call: `GET /order` and `GET /report`, as cheap as can be had. */
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { freePorts, untilListening } from './ports.ts'

const START_MS = 10_000

export interface Stub extends AsyncDisposable {
  readonly program: 'nginx' | 'node'
  readonly url: string
  readonly pid: number
}

/** nginx where it is installed; it takes a tenth of the processor time of a Node server. */
export async function startStub(): Promise<Stub> {
  await using opened = new AsyncDisposableStack()
  const folder = opened.adopt(await mkdtemp(join(tmpdir(), 'integration-host-bench-')), (path) =>
    rm(path, { recursive: true }),
  )
  const [port = 0] = await freePorts(1)
  await writeFile(join(folder, 'nginx.conf'), nginxConfig(folder, port))
  const program = spawnSync('nginx', ['-v']).status === 0 ? 'nginx' : 'node'
  const [command, args] =
    program === 'nginx'
      ? ['nginx', ['-p', folder, '-e', 'error.log', '-c', 'nginx.conf']]
      : [process.execPath, ['-e', `(${serve.toString()})(${port})`]]
  const child = spawn(command, args, { stdio: 'ignore' })
  const gone = once(child, 'exit')
  opened.defer(async () => {
    // On this one nginx ends its worker as well.
    child.kill('SIGTERM')
    await gone
  })
  await untilListening(port, START_MS)
  const running = opened.move()
  return {
    program,
    url: `http://127.0.0.1:${port}`,
    pid: child.pid ?? 0,
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  }
}

const nginxConfig = (folder: string, port: number): string => `
daemon off;
worker_processes 1;
pid nginx.pid;
events { worker_connections 4096; }
http {
  access_log off;
  default_type application/json;
  keepalive_requests 100000000;
  keepalive_timeout 600s;
  ${['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((use) => `${use}_temp_path ${folder};`).join(' ')}
  server {
    listen 127.0.0.1:${port} backlog=4096;
    location = /order { return 201 '{"Order":"$arg_order","CreatedAt":"$time_iso8601"}'; }
    location = /report {
      return 200 '{"Order":"$arg_order","CreatedAt":"$time_iso8601","Status":"Confirmed"}';
    }
  }
}
`

/** Runs in a process of its own, from its text: it uses nothing from outside. */
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
