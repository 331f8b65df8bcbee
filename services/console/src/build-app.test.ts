import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { build } from 'esbuild'
import { beforeAll, describe, expect, it } from 'vitest'
import { type BuiltApp, buildApp, readApp, writeApp } from './build-app.ts'

/** The first load of a page: HTML, styles and script, compressed. */
const MAX_FIRST_LOAD_BYTES = 150 * 1_024

describe("the browser's program", () => {
  let app: BuiltApp

  beforeAll(async () => {
    app = await buildApp(build)
  })

  it('the first load has at most 150 KB', () => {
    const sizes = [app.shell, ...app.assets].map(({ gzip }) => gzip.length)
    const total = sizes.reduce((sum, size) => sum + size, 0)
    expect(total).toBeGreaterThan(30 * 1_024)
    expect(total).toBeLessThan(MAX_FIRST_LOAD_BYTES)
  })

  it('the program contains no path of a token, an export, an import or the accounting API, and no other address', () => {
    const text = app.assets.map(({ body }) => Buffer.from(body).toString()).join('\n')
    for (const path of ['/token', '/exports', '/imports', '/key-rotations', '/v3/'])
      expect(text).not.toContain(`"${path}`)
    const hosts = [...text.matchAll(/https?:\/\/([\w.-]+)/g)].map(([, host]) => host)
    // React names these as identifiers of XML, and in messages. Neither is fetched.
    expect(hosts.filter((host) => host !== 'www.w3.org' && host !== 'react.dev')).toEqual([])
  })

  it('a bundle that was written is read unchanged', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'bundle-'))
    try {
      await writeApp(app, folder)
      const byPath = ({ assets }: BuiltApp) =>
        new Map(assets.map(({ path, type, body }) => [path, [type, Buffer.from(body).toString()]]))
      const read = await readApp(folder)
      expect(byPath(read)).toEqual(byPath(app))
      expect(Buffer.from(read.shell.body)).toEqual(Buffer.from(app.shell.body))
    } finally {
      await rm(folder, { recursive: true })
    }
  })

  it('the page has no inline script or style, which the policy would block', () => {
    const html = Buffer.from(app.shell.body).toString()
    expect(html).not.toMatch(/<style|style="|<script(?![^>]*\bsrc=)/)
    for (const { path } of app.assets) expect(path).toMatch(/^\/assets\/\w+-\w{8}\.(js|css)$/)
  })
})
