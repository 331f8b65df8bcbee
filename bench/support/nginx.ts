import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { freePort } from '@integration-host/shared/test-support/free-ports'
import { startProcess } from '@integration-host/shared/test-support/start-process'
import { untilListening } from '../order-process/ports.ts'

const START_MS = 10_000

export interface Nginx extends AsyncDisposable {
  readonly url: string
  readonly pid: number
}

/** Starts nginx on a free port with the given lines in the `http` block. Resolves when nginx listens. */
export async function startNginx(http: (port: number) => string): Promise<Nginx> {
  await using opened = new AsyncDisposableStack()
  const folder = opened.adopt(await mkdtemp(join(tmpdir(), 'integration-host-bench-')), (path) =>
    rm(path, { recursive: true }),
  )
  const port = await freePort()
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
  // nginx runs as one process without a master, so that the processor time of this process is that of the whole
  // server.
  await writeFile(
    join(folder, 'nginx.conf'),
    `daemon off;
master_process off;
pid nginx.pid;
pcre_jit on;
events { worker_connections 4096; }
http {
  access_log off;
  default_type application/json;
  keepalive_requests 100000000;
  keepalive_timeout 600s;
  ${temporary.map((use) => `${use}_temp_path ${folder};`).join(' ')}
  ${http(port)}
}
`,
  )
  const nginx = startProcess(['-p', folder, '-e', 'error.log', '-c', 'nginx.conf'], {
    program: 'nginx',
  })
  opened.defer(async () => void (await nginx.stop('SIGTERM')))
  await untilListening(port, START_MS)
  const running = opened.move()
  return {
    url: `http://127.0.0.1:${port}`,
    pid: nginx.pid,
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  }
}
