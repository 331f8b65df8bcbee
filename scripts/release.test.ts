import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { runProcess } from '../packages/shared/test-support/start-process.ts'
import { notesOf, packageProblems, stepsBefore } from './check-release.ts'
import { packageManifest } from './package-manifest.ts'

const CHANGELOG = '# Changelog\n\n## 1.3.0 (unreleased)\n\nNew.\n\n## 1.2.0 (2026-11-29)\n\nOld.\n'
const manifest = packageManifest(
  [
    {
      folder: '.',
      name: 'integration-host',
      version: '1.3.0',
      license: 'Apache-2.0',
      description: '',
      engines: {},
      devDependencies: {},
      bin: { 'integration-host': 'scripts/integration-host.mjs' },
      exports: { './client': './client.ts' },
      dependencies: { postgres: '3.4.9' },
    },
  ],
  'patchedDependencies:\n  postgres@3.4.9: patches/p.patch\n',
)
const FILES = [
  'LICENSE',
  'README.md',
  'CHANGELOG.md',
  'package.json',
  'client.js',
  'client.d.ts',
  'scripts/integration-host.mjs',
  'node_modules/postgres/package.json',
]
const packed = (paths: readonly string[], size = 1_000, unpackedSize = 1_000) => ({
  files: paths.map((path) => ({ path })),
  size,
  unpackedSize,
})

describe('a release', () => {
  it('is refused without --dry-run, with the reason', async () => {
    const { code, stderr } = await runProcess([join(import.meta.dirname, 'release.ts')])
    expect([code, stderr]).toEqual([2, expect.stringContaining('registered nowhere yet')])
  })

  it('has the notes of its section in the changelog, which a version in development shares with the next one', () => {
    expect(notesOf(CHANGELOG, '1.2.0')).toBe('Old.')
    expect(notesOf(CHANGELOG, '1.3.0-dev')).toBe('New.')
    expect(notesOf(CHANGELOG, '1.4.0')).toBeNull()
  })

  it('lists what a person has to do before it', () => {
    expect(stepsBefore({ version: '1.3.0-dev' }, CHANGELOG)).toHaveLength(4)
    expect(stepsBefore({ version: '1.2.0', repository: {} }, CHANGELOG)).toEqual([
      expect.stringContaining('register the name'),
    ])
  })

  it('accepts a package with licence, documents, entry points and bundled packages, whose provenance npm will record', () => {
    expect(manifest.publishConfig).toEqual({ access: 'public', provenance: true })
    expect(packageProblems(manifest, packed(FILES))).toEqual([])
  })

  it.each([
    ['LICENSE is missing', packed(FILES.filter((path) => path !== 'LICENSE'))],
    ['client.d.ts is missing', packed(FILES.filter((path) => path !== 'client.d.ts'))],
    ['postgres is not bundled', packed(FILES.filter((path) => !path.includes('postgres')))],
    ['host/src/a.test.js does not belong there', packed([...FILES, 'host/src/a.test.js'])],
    ['deploy/tls.key does not belong there', packed([...FILES, 'deploy/tls.key'])],
    ['5000000 bytes are more than 4194304', packed(FILES, 5_000_000)],
    ['13000000 bytes unpacked are more than 12582912', packed(FILES, 1, 13_000_000)],
  ])('rejects a package: %s', (problem, files) => {
    expect(packageProblems(manifest, files)).toEqual([problem])
  })
})
