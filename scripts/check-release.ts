/** What `npm run release` checks: the version, its notes, and the package, as pure functions. */
import type { PackageManifest } from './package-manifest.ts'

/** The parts of the output of `npm pack --json` that are checked. */
export interface PackedFiles {
  readonly files: readonly { readonly path: string }[]
  /** Bytes of the tarball, and of the files in it. */
  readonly size: number
  readonly unpackedSize: number
}

const MIB = 1_024 * 1_024
/** Above these sizes something is in the package that does not belong there. */
const MAX_SIZE = 4 * MIB
const MAX_UNPACKED_SIZE = 12 * MIB
const NEVER_PACKED =
  /(?:^|\/)(?:test-support|data|\.git)\/|\.(?:test|contract)\.(?:js|d\.ts)$|\.(?:map|pem|key|tsx)$|(?:^|\/)\.env$/
const ALWAYS_PACKED = ['LICENSE', 'README.md', 'CHANGELOG.md', 'package.json']

/**
 * Returns the section of CHANGELOG.md about a version, without its heading; `null` if there is none. The section of
 * `1.2.0-dev` is that of the next version, `1.2.0`.
 */
export function notesOf(changelog: string, version: string): string | null {
  const heading = `## ${version.replace(/-dev$/, '')} (`
  const section = changelog.split(/^(?=## )/m).find((text) => text.startsWith(heading))
  return section === undefined ? null : section.slice(section.indexOf('\n')).trim()
}

/** Returns what is wrong with the package; nothing of it may be published. */
export function packageProblems(
  manifest: PackageManifest,
  { files, size, unpackedSize }: PackedFiles,
): readonly string[] {
  const paths = new Set(files.map(({ path }) => path))
  const entries = [
    ...Object.values(manifest.bin),
    ...Object.values(manifest.exports).flatMap((door) =>
      typeof door === 'string' ? door : [door.types, door.default],
    ),
  ].map((path) => path.replace(/^\.\//, ''))
  const own = [...paths].filter((path) => !path.startsWith('node_modules/'))
  const bundled = [...paths].flatMap(
    (path) => /^node_modules\/(.+)\/package\.json$/.exec(path)?.[1] ?? [],
  )
  return [
    ...[...ALWAYS_PACKED, ...entries]
      .filter((path) => !paths.has(path))
      .map((path) => `${path} is missing`),
    ...own.filter((path) => NEVER_PACKED.test(path)).map((path) => `${path} does not belong there`),
    ...manifest.bundleDependencies
      .filter((name) => !bundled.includes(name))
      .map((name) => `${name} is not bundled`),
    ...(manifest.license === 'Apache-2.0' ? [] : ['the licence is not Apache-2.0']),
    ...(manifest.publishConfig.provenance ? [] : ['provenance is not requested']),
    ...(size > MAX_SIZE ? [`${size} bytes are more than ${MAX_SIZE}`] : []),
    ...(unpackedSize > MAX_UNPACKED_SIZE
      ? [`${unpackedSize} bytes unpacked are more than ${MAX_UNPACKED_SIZE}`]
      : []),
  ]
}

/** Returns what a person has to do before this version can be published. */
export function stepsBefore(
  { version, repository }: { readonly version: string; readonly repository?: unknown },
  changelog: string,
): readonly string[] {
  return [
    ...(version.endsWith('-dev')
      ? [`set the version in package.json: ${version} is in development`]
      : []),
    ...(new RegExp(`^## ${version.replace(/-dev$/, '')} \\(\\d{4}-\\d\\d-\\d\\d\\)$`, 'm').test(
      changelog,
    )
      ? []
      : ['write the date of the release into CHANGELOG.md']),
    ...(repository === undefined
      ? ['name the repository in package.json: npm compares it with the provenance']
      : []),
    'register the name integration-host: until it is registered, another publisher can take it',
  ]
}
