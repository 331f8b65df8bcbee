/**
 * The page `/docs`, which shows the OpenAPI document of the service with Scalar's reference page. The script of the
 * page is served by the service itself, and the page can request nothing from other hosts.
 */
import { createHash } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { findPackageJSON } from 'node:module'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { gunzip, gzip } from 'node:zlib'
import type { Context } from 'hono'
import { html, raw } from 'hono/html'

export const SCRIPT_PATH = '/docs/reference.js'

const CONFIGURATION = {
  url: '/openapi.json',
  telemetry: false,
  withDefaultFonts: false, // the default fonts are on another host
  // The page cannot send requests to the API, so that users do not enter keys into it.
  hideTestRequestButton: true,
  hideClientButton: true,
  showDeveloperTools: 'never',
  agent: { disabled: true },
  mcp: { disabled: true },
  persistAuth: false,
  documentDownloadType: 'direct',
  defaultOpenAllTags: true,
  defaultHttpClient: { targetKey: 'shell', clientKey: 'curl' },
  metaData: { robots: 'noindex' },
}

// The examples contain the URL under which the browser opened the page, because a service does not know its public URL.
const START = `Scalar.createApiReference('#reference', { ...${JSON.stringify(CONFIGURATION)}, servers: [{ url: location.origin }] })`

/** `unsafe-inline` is set for styles only, because the page's components set styles in attributes. */
const POLICY = [
  "default-src 'none'",
  `script-src 'self' 'sha256-${createHash('sha256').update(START).digest('base64')}'`,
  "style-src 'unsafe-inline'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ')

// The bundle is located relative to the package.json, because the package does not export the bundle. In the package that
// `npm run pack` builds, only the compressed bundle exists.
const PACKAGE = findPackageJSON('@scalar/api-reference', import.meta.url) ?? ''
const BUNDLE = join(dirname(PACKAGE), 'dist/browser/standalone.js')

export interface ReferencePage {
  readonly respond: (c: Context) => Response | Promise<Response>
  /** Responds with the script of the page, which is 4 MB, and 1.3 MB compressed. */
  readonly respondScript: (c: Context) => Promise<Response>
}

/** Creates the page. `info` is the member `info` of the OpenAPI document. */
export function createReferencePage(info: {
  readonly title: string
  readonly description: string
}): ReferencePage {
  const { version } = JSON.parse(readFileSync(PACKAGE, 'utf8')) as { readonly version: string }
  // The script is compressed, or read, at the first request for it.
  let compressed: Promise<Buffer<ArrayBuffer>> | null = null
  const compress = async () =>
    existsSync(`${BUNDLE}.gz`) ? readFile(`${BUNDLE}.gz`) : promisify(gzip)(await readFile(BUNDLE))
  return {
    respond(c) {
      c.header('Content-Security-Policy', POLICY)
      return c.html(
        html`<!doctype html>
          <html lang="en">
            <head>
              <meta charset="utf-8" />
              <meta name="viewport" content="width=device-width, initial-scale=1" />
              <title>${info.title}</title>
              <style>
                /* On a phone, examples of some operations are wider than the page. */
                #reference {
                  overflow-x: clip;
                }
              </style>
            </head>
            <body>
              <noscript>
                <h1>${info.title}</h1>
                <p>${info.description}</p>
                <p>
                  This page needs JavaScript. It shows <a href="/openapi.json">/openapi.json</a>.
                </p>
              </noscript>
              <div id="reference"></div>
              <script src="${SCRIPT_PATH}?v=${version}"></script>
              ${raw(`<script>${START}</script>`)}
            </body>
          </html>`,
      )
    },
    async respondScript(c) {
      c.header('Content-Type', 'text/javascript; charset=utf-8')
      c.header('Vary', 'Accept-Encoding')
      // The page requests the script under a URL that contains the version of the script, so browsers may cache it
      // forever.
      c.header('Cache-Control', 'public, max-age=31536000, immutable')
      compressed ??= compress()
      if (!/\bgzip\b/.test(c.req.header('Accept-Encoding') ?? ''))
        return c.body(await promisify(gunzip)(await compressed))
      c.header('Content-Encoding', 'gzip')
      return c.body(await compressed)
    },
  }
}
