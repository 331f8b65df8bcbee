/**
 * `npm run release -- --dry-run`: builds and checks the package and the image of this version, and prints its notes. It
 * publishes nothing: the name `integration-host` is registered nowhere yet, and CONTRIBUTING.md says what a release needs.
 * What cannot be built on this machine is left out and named.
 */
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import manifest from '../package.json' with { type: 'json' }
import { notesOf, type PackedFiles, packageProblems, stepsBefore } from './check-release.ts'
import type { PackageManifest } from './package-manifest.ts'

const root = join(import.meta.dirname, '..')
const folder = join(root, 'dist/package')
const { version } = manifest
/** The labels that say from what an image was built. The Dockerfile has the others. */
const LABELS = {
  'org.opencontainers.image.version': version,
  'org.opencontainers.image.revision': output('git', ['rev-parse', 'HEAD']) ?? 'unknown',
  'org.opencontainers.image.created': new Date().toISOString(),
}
const NEEDED_LABELS = {
  ...LABELS,
  'org.opencontainers.image.title': 'integration-host',
  'org.opencontainers.image.licenses': manifest.license,
}

if (process.argv.slice(2).join(' ') !== '--dry-run') {
  console.error(
    'Nothing is published: the name integration-host is registered nowhere yet. `npm run release -- --dry-run` builds and checks the package and the image.',
  )
  process.exit(2)
}

const problems: string[] = []
const leftOut: string[] = []
checkPackage()
checkImage()
const changelog = readFileSync(join(root, 'CHANGELOG.md'), 'utf8')
const notes = notesOf(changelog, version)
if (notes === null) problems.push(`CHANGELOG.md has no section for ${version}`)
console.log(`\nNotes of ${version}\n\n${notes ?? ''}`)
list('Left out', leftOut)
list('Before this version can be published', stepsBefore(manifest, changelog))
list('Problems', problems)
if (problems.length > 0) process.exitCode = 1

function checkPackage(): void {
  run(process.execPath, ['scripts/pack.ts'])
  const packed = JSON.parse(
    output('npm', ['pack', '--dry-run', '--json'], folder) ?? '[]',
  ) as readonly PackedFiles[]
  const [files = { files: [], size: 0, unpackedSize: 0 }] = packed
  const built = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as PackageManifest
  const kib = (bytes: number): string => `${Math.round(bytes / 1_024)} KiB`
  console.log(
    `Package: ${files.files.length} files, ${kib(files.size)}, unpacked ${kib(files.unpackedSize)}`,
  )
  problems.push(...packageProblems(built, files))
}

function checkImage(): void {
  if (output('docker', ['version', '--format', '{{.Server.Version}}']) === null) {
    leftOut.push('the image: no Docker engine responds')
    return
  }
  const tag = `integration-host:${version}`
  const labels = Object.entries(LABELS).flatMap(([name, value]) => ['--label', `${name}=${value}`])
  run('docker', ['build', '--quiet', '--tag', tag, ...labels, '.'])
  const inspected = output('docker', ['image', 'inspect', '--format', '{{json .Config}}', tag])
  const { Labels = {}, User } = JSON.parse(inspected ?? '{}') as {
    Labels?: Record<string, string>
    User?: string
  }
  for (const [name, value] of Object.entries(NEEDED_LABELS))
    if (Labels[name] !== value) problems.push(`the image has no label ${name}=${value}`)
  if (User !== 'node') problems.push('the image does not run as the user node')
  console.log(`Image: ${tag}, labels ${Object.keys(Labels).length}`)

  // The engine's own builder builds for one architecture and without attestations.
  if (!/^Driver: +docker-container$/m.test(output('docker', ['buildx', 'inspect']) ?? '')) {
    leftOut.push(
      'SBOM, provenance and linux/arm64 of the image: they need a builder (docker buildx create --use)',
    )
    return
  }
  const archive = `type=oci,dest=dist/integration-host-${version}.oci.tar`
  const platforms = 'linux/amd64,linux/arm64'
  run('docker', [
    'buildx',
    'build',
    '--platform',
    platforms,
    '--sbom=true',
    '--provenance=mode=max',
    '--output',
    archive,
    ...labels,
    '.',
  ])
  console.log(`Image: ${archive} for ${platforms}, with SBOM and provenance`)
}

function list(title: string, lines: readonly string[]): void {
  if (lines.length > 0) console.log(`\n${title}:\n${lines.map((line) => `- ${line}`).join('\n')}`)
}

/** Returns the standard output of a program; `null` if it fails or is not installed. */
function output(program: string, args: readonly string[], cwd = root): string | null {
  const { status, stdout } = spawnSync(program, args, {
    cwd,
    encoding: 'utf8',
    maxBuffer: 64 * 1_024 * 1_024,
  })
  return status === 0 ? stdout.trim() : null
}

/** Runs a program. If it fails, ends this program. */
function run(program: string, args: readonly string[]): void {
  const { status } = spawnSync(program, args, { cwd: root, stdio: 'inherit' })
  if (status === 0) return
  console.error(`${program} ${args.join(' ')} failed`)
  process.exit(1)
}
