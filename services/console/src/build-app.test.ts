import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import * as esbuild from 'esbuild'
import { beforeAll, describe, expect, it } from 'vitest'
import { type Asset, type BuiltApp, buildApp, readApp, writeApp } from './build-app.ts'

/** The first load of a page: HTML, styles and script, compressed. */
const MAX_FIRST_LOAD_BYTES = 150 * 1_024
const MAX_FIRST_SCRIPT_BYTES = 120 * 1_024
const MAX_PAGE_BYTES = 25 * 1_024

describe('the browser bundle of the console', () => {
  let app: BuiltApp

  beforeAll(async () => {
    app = await buildApp(esbuild)
  })

  const textOf = ({ body }: Asset): string => Buffer.from(body).toString()
  const isDocument = ({ path }: Asset): boolean => /\.(?:md|txt)$/.test(path)

  /**
   * Returns the files that the browser loads together with a file: those that it imports statically, and their
   * own imports.
   */
  function loadedWith(file: Asset): ReadonlySet<Asset> {
    const loaded = new Set([file])
    for (const { path, body } of loaded)
      if (path.endsWith('.js'))
        for (const [, name] of Buffer.from(body)
          .toString()
          .matchAll(/(?:from|import)"\.\/([\w-]+\.js)"/g))
          for (const asset of app.assets) if (asset.path === `/assets/${name}`) loaded.add(asset)
    return loaded
  }
  const bytesOf = (files: Iterable<Asset>): number =>
    [...files].reduce((sum, { gzip }) => sum + gzip.length, 0)
  function firstLoad(): ReadonlySet<Asset> {
    const html = textOf(app.shell)
    const named = app.assets.filter(({ path }) => html.includes(path))
    return new Set([app.shell, ...named.flatMap((asset) => [...loadedWith(asset)])])
  }

  it('the first load of a console page transfers at most 150 KB', () => {
    const bytes = bytesOf(firstLoad())
    expect(bytes).toBeGreaterThan(30 * 1_024)
    expect(bytes).toBeLessThan(MAX_FIRST_LOAD_BYTES)
  })

  it('the first load of a console page transfers at most 120 KB of scripts, in at most three files', () => {
    const scripts = [...firstLoad()].filter(({ path }) => path.endsWith('.js'))
    expect(bytesOf(scripts)).toBeLessThan(MAX_FIRST_SCRIPT_BYTES)
    expect(scripts.length).toBeLessThanOrEqual(3)
  })

  it('each console page that is loaded on demand adds at most 25 KB', () => {
    const later = app.assets.filter((asset) => !firstLoad().has(asset) && !isDocument(asset))
    expect(later.length).toBeGreaterThanOrEqual(2)
    for (const asset of later)
      expect(
        bytesOf([...loadedWith(asset)].filter((file) => !firstLoad().has(file))),
        asset.path,
      ).toBeLessThan(MAX_PAGE_BYTES)
  })

  it('the browser bundle contains no path of the routes for tokens, exports, imports and the accounting API, and no foreign address', () => {
    const text = app.assets.map(textOf).join('\n')
    for (const path of ['/token', '/exports', '/imports', '/key-rotations', '/v3/'])
      expect(text).not.toContain(`"${path}`)
    // The documents contain addresses as text.
    const program = app.assets
      .filter((asset) => !isDocument(asset))
      .map(textOf)
      .join('\n')
    const hosts = [...program.matchAll(/https?:\/\/([\w.-]+)/g)].map(([, host]) => host)
    // React contains these addresses as XML identifiers and in messages. React sends no request to these addresses.
    expect(hosts.filter((host) => host !== 'www.w3.org' && host !== 'react.dev')).toEqual([])
  })

  it('the bundle contains the licences of the packages whose code is in it', () => {
    const licences = app.assets.find(({ path }) => path.endsWith('.txt'))
    for (const name of ['react', 'react-dom', 'scheduler', '@tanstack/react-query'])
      expect(licences && textOf(licences)).toMatch(
        new RegExp(`^${name} \\d+\\.\\d+\\.\\d+\\n\\n(?:The )?MIT License`, 'm'),
      )
  })

  it('readApp() returns the bundle that writeApp() has written', async () => {
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

  it('the HTML of the console has no inline script or style, which its Content-Security-Policy would block', () => {
    const html = Buffer.from(app.shell.body).toString()
    expect(html).not.toMatch(/<style|style="|<script(?![^>]*\bsrc=)/)
    for (const { path } of app.assets)
      expect(path).toMatch(/^\/assets\/[\w-]+-\w{8}\.(js|css|md|txt)$/)
  })
})

it('buildApp() stops the process of esbuild even if the bundling fails', async () => {
  let stops = 0
  const failing = {
    build: () => Promise.reject(new Error('a syntax error')),
    stop: async () => void (stops += 1),
  }
  await expect(buildApp(failing)).rejects.toThrow('a syntax error')
  expect(stops).toBe(1)
})
