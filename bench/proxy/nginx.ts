/**
 * The two roles of nginx in the proxy benchmark: one nginx process is the accounting API, and another is a proxy that
 * is compared with the gateway.
 */
import { type Nginx, startNginx } from '../support/nginx.ts'
import { tokenOf } from './peer.ts'

/** The response body is joined from parts, because nginx rejects a configuration parameter of more than 4 KiB. */
const PART = 'x'.repeat(950)

/**
 * Starts the accounting API. A query or a POST of an invoice with the realm's bearer token gets a response of about
 * `responseBytes` bytes; any other request gets 401.
 */
export const startUpstream = (responseBytes: number): Promise<Nginx> =>
  startNginx(
    (port) => `
  map "$uri $http_authorization $arg_query" $is_right {
    "~^/v3/company/(?<r>[^/]+)/query Bearer tok-\\k<r>-x+ select" 1;
    "~^/v3/company/(?<i>[^/]+)/invoice Bearer tok-\\k<i>-x+ " 1;
    default 0;
  }
  map "" $part { default "${PART}"; }
  server {
    listen 127.0.0.1:${port} backlog=4096;
    client_max_body_size 2m;
    location / {
      if ($is_right = 0) { return 401; }
      return 200 '{"QueryResponse":{"CompanyInfo":"${'$part'.repeat(Math.round(responseBytes / PART.length))}"}}';
    }
  }`,
  )

/**
 * Starts the cheapest possible proxy: one process with a static map of bearer tokens, without authentication and
 * limits. No other proxy is expected to need less processor time.
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
