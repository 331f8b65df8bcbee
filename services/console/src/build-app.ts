/**
 * Bundles the program that runs in the browser. In a checkout the bundle stays in memory, so it is never outdated. The
 * image and the package contain a finished bundle in the folder `BUNDLE`, and neither esbuild nor the packages that
 * only the browser needs. Therefore this module does not import esbuild statically.
 */
import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { StartupError } from '@integration-host/shared/process/lifecycle'
import type { BuildOptions, BuildResult } from 'esbuild'

/** A file that the console serves to browsers. */
export interface Asset {
  /** The path below the console's address, such as `/assets/main-4F2K.js`. */
  readonly path: string
  readonly type: string
  readonly body: Uint8Array
  readonly gzip: Uint8Array
}

export interface BuiltApp {
  /** The HTML of every page. It contains no data, so it needs no session. */
  readonly shell: Asset
  readonly assets: readonly Asset[]
}

export interface Bundler {
  build(options: BuildOptions): Promise<BuildResult>
  stop(): Promise<void>
}

/** The folder with the sources of the program that runs in the browser. It exists in a checkout only. */
const APP = join(import.meta.dirname, '../app')
/** The folder with the finished bundle of the image and of the package. */
export const BUNDLE = join(import.meta.dirname, '../dist')
const TYPES: Readonly<Record<string, string>> = {
  js: 'text/javascript; charset=utf-8',
  css: 'text/css; charset=utf-8',
  // A browser shows a text of this type, and would save Markdown as a file.
  md: 'text/plain; charset=utf-8',
  txt: 'text/plain; charset=utf-8',
}

/**
 * Returns the finished bundle of the image or of the package; in a checkout, bundles the sources.
 *
 * @throws {StartupError} there is no bundle, and esbuild is not installed.
 * @throws {Error} as {@link buildApp}.
 */
export async function loadApp(): Promise<BuiltApp> {
  if (existsSync(BUNDLE)) return readApp(BUNDLE)
  const esbuild = await import('esbuild').catch(() => {
    throw new StartupError(
      'there is neither a bundle nor esbuild: run services/console/src/write-app.ts where esbuild is installed',
    )
  })
  return buildApp(esbuild)
}

/**
 * Bundles the program that runs in the browser. Then stops the process of esbuild, which would otherwise keep 50 MB for
 * as long as this process runs. Stopping it would break a concurrent call, so only one call at a time is permitted.
 *
 * @throws {Error} esbuild reports an error in the sources, or has no binary for this platform.
 */
export async function buildApp(esbuild: Bundler): Promise<BuiltApp> {
  try {
    const { outputFiles = [], metafile } = await esbuild.build({
      absWorkingDir: APP,
      entryPoints: ['main.tsx'],
      outdir: '/assets',
      entryNames: '[name]-[hash]',
      chunkNames: '[name]-[hash]',
      bundle: true,
      splitting: true,
      format: 'esm',
      target: 'es2023',
      jsx: 'automatic',
      minify: true,
      metafile: true,
      write: false,
      assetNames: '[name]-[hash]',
      loader: { '.md': 'file' },
      legalComments: 'none',
      define: { 'process.env.NODE_ENV': '"production"' },
      tsconfigRaw: { compilerOptions: { verbatimModuleSyntax: true } },
      logLevel: 'silent',
    })
    if (metafile === undefined) throw new Error('esbuild returned no description of its output')
    const files = outputFiles.map(({ path, contents }) => fileAsset(basename(path), contents))
    return appOf([...files, await licencesAsset(Object.keys(metafile.inputs))])
  } finally {
    await esbuild.stop()
  }
}

/** Writes the files of a bundle to a folder, from which {@link readApp} reads them. */
export async function writeApp({ assets }: BuiltApp, folder: string): Promise<void> {
  await mkdir(folder, { recursive: true })
  for (const { path, body } of assets) await writeFile(join(folder, basename(path)), body)
}

/** Reads a bundle from a folder. @throws {Error} the folder does not exist, or contains no bundle. */
export async function readApp(folder: string): Promise<BuiltApp> {
  const names = await readdir(folder)
  return appOf(
    await Promise.all(
      names.map(async (name) => fileAsset(name, await readFile(join(folder, name)))),
    ),
  )
}

function appOf(assets: readonly Asset[]): BuiltApp {
  const first = (pattern: RegExp): string =>
    assets.find(({ path }) => pattern.test(path))?.path ?? missing(String(pattern))
  const html = shellHtml(first(/\/main-[^/]*\.js$/), first(/\/main-[^/]*\.css$/))
  return { shell: asset('/', 'text/html; charset=utf-8', Buffer.from(html)), assets }
}

const fileAsset = (name: string, body: Uint8Array): Asset =>
  asset(`/assets/${name}`, TYPES[name.slice(name.lastIndexOf('.') + 1)] ?? '', body)

const asset = (path: string, type: string, body: Uint8Array): Asset => ({
  path,
  type,
  body,
  gzip: gzipSync(body, { level: 9 }),
})

/**
 * Returns the licences of the packages whose code is in the bundle, which these licences demand where the packages
 * themselves are not installed. `sources` are the bundled files.
 */
async function licencesAsset(sources: readonly string[]): Promise<Asset> {
  const folders = new Set(
    sources.flatMap((source) => /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+/.exec(source)?.[0] ?? []),
  )
  const texts = [...folders].map(async (folder) => {
    const read = (file: string): Promise<string> => readFile(join(APP, folder, file), 'utf8')
    const { name, version } = JSON.parse(await read('package.json')) as Record<string, string>
    return `${name} ${version}\n\n${await read('LICENSE')}`
  })
  const text = (await Promise.all(texts)).toSorted().join(`\n${'-'.repeat(80)}\n\n`)
  const hash = createHash('sha256').update(text).digest('hex').slice(0, 8)
  return fileAsset(`licences-${hash}.txt`, Buffer.from(text))
}

function missing(what: string): never {
  throw new Error(`esbuild wrote no file ${what}`)
}

/** The icon, a gate of three bars, as a data URL. With it, browsers do not request favicon.ico. */
const ICON =
  "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Crect width='16' height='16' rx='4' fill='%230b5cad'/%3E%3Cpath d='M4 5h8M4 8h5M4 11h7' stroke='%23fff' stroke-width='1.6' stroke-linecap='round'/%3E%3C/svg%3E"

const shellHtml = (script: string, style: string): string => `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Console</title>
<link rel="icon" href="${ICON}">
<link rel="stylesheet" href="${style}">
<script type="module" src="${script}"></script>
</head>
<body>
<div id="app"></div>
<noscript>This page needs JavaScript. The command line shows the same: integration-host --help</noscript>
</body>
</html>
`
