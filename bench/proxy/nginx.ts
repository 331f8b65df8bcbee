/** The two roles of nginx in the proxy benchmark: the accounting API, and a proxy to compare with. */
import { type Nginx, startNginx } from '../support/nginx.ts'
import { tokenOf } from './peer.ts'

const RESPONSE = JSON.stringify({ QueryResponse: { CompanyInfo: 'x'.repeat(950) } })

/** Responds with about 1 KB to a request with its realm's bearer token and a query, and with 401 to any other. */
export const startUpstream = (): Promise<Nginx> =>
  startNginx(
    (port) => `
  map "$uri $http_authorization $arg_query" $is_right {
    "~^/v3/company/(?<r>[^/]+)/query Bearer tok-\\k<r>-x+ select" 1;
    default 0;
  }
  server {
    listen 127.0.0.1:${port} backlog=4096;
    location / {
      if ($is_right = 0) { return 401; }
      return 200 '${RESPONSE}';
    }
  }`,
  )

/**
 * The lower bound of a proxy's cost: bearer tokens from a static map, one process, no authentication, no
 * limits.
 */
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
