/** What nginx is in the proxy benchmark: the accounting API, and the proxy to be compared with. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { freePorts, untilListening } from '../order-process/ports.ts'
import { tokenOf } from './peer.ts'

const START_MS = 10_000

export interface Nginx extends AsyncDisposable {
  readonly url: string
  readonly pid: number
}

const ANSWER = JSON.stringify({ QueryResponse: { CompanyInfo: 'x'.repeat(950) } })

/** Answers about 1 KB to a call that has the bearer of its realm and a query; 401 to any other. */
export const startUpstream = (): Promise<Nginx> =>
  startNginx(
    (port) => `
  map "$uri $http_authorization $arg_query" $is_right {
    "~^/v3/company/(?<r>[^/]+)/query Bearer tok-\\k<r>-x+ select" 1;
    default 0;
  }
  server {
    listen 127.0.0.1:${port} backlog=4096;
    default_type application/json;
    location / {
      if ($is_right = 0) { return 401; }
      return 200 '${ANSWER}';
    }
  }`,
  )

/** The floor: bearers from a static map, one process, no key, no limits. */
export const startNginxProxy = (upstream: string, realms: readonly string[]): Promise<Nginx> =>
  startNginx(
    (port) => `
  map_hash_max_size 65536;
  map_hash_bucket_size 2048;
  map $realm $bearer {
    ${realms.map((realm) => `${realm} "Bearer ${tokenOf(realm)}";`).join('\n    ')}
  }
  upstream accounting { server ${new URL(upstream).host}; keepalive 64; keepalive_requests 100000000; }
  server {
    listen 127.0.0.1:${port} backlog=4096;
    location ~ ^/v3/company/(?<realm>[^/]+)/ {
      proxy_pass http://accounting;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Authorization $bearer;
    }
  }`,
  )

async function startNginx(serverAt: (port: number) => string): Promise<Nginx> {
  await using opened = new AsyncDisposableStack()
  const folder = opened.adopt(await mkdtemp(join(tmpdir(), 'integration-host-bench-')), (path) =>
    rm(path, { recursive: true }),
  )
  const [port = 0] = await freePorts(1)
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
  // One process without a master: its processor time is all there is.
  await writeFile(
    join(folder, 'nginx.conf'),
    `daemon off;
master_process off;
pid nginx.pid;
events { worker_connections 4096; }
http {
  access_log off;
  keepalive_requests 100000000;
  keepalive_timeout 600s;
  ${temporary.map((use) => `${use}_temp_path ${folder};`).join(' ')}
  ${serverAt(port)}
}
`,
  )
  const child = spawn('nginx', ['-p', folder, '-e', 'error.log', '-c', 'nginx.conf'], {
    stdio: 'ignore',
  })
  const gone = once(child, 'exit')
  opened.defer(async () => {
    child.kill('SIGTERM')
    await gone
  })
  await untilListening(port, START_MS)
  const running = opened.move()
  return {
    url: `http://127.0.0.1:${port}`,
    pid: child.pid ?? 0,
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  }
}
