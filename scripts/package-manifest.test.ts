import { describe, expect, it } from 'vitest'
import { packageManifest, type WorkspaceManifest } from './package-manifest.ts'

const of = (members: Partial<WorkspaceManifest>): WorkspaceManifest => ({
  folder: '.',
  name: 'integration-host',
  version: '1.2.3',
  license: 'Apache-2.0',
  description: '',
  bin: {},
  engines: { node: '>=24' },
  exports: { '.': './src/api.ts' },
  dependencies: {},
  devDependencies: { typescript: '7.0.2', '@types/node': '24.19.2', vitest: '5.1.1' },
  ...members,
})
const PATCHES = 'packages:\n  - a\npatchedDependencies:\n  postgres@3.4.9: patches/p.patch\n'

describe('the manifest of the package', () => {
  it('packageManifest() merges the dependencies of all workspace packages, and omits the workspace packages themselves', () => {
    const { dependencies } = packageManifest(
      [
        of({}),
        of({ name: '@x/a', dependencies: { zod: '4.6.7', '@x/b': 'workspace:*' } }),
        of({ name: '@x/b', dependencies: { hono: '4.13.19', zod: '4.6.7' } }),
      ],
      '',
    )
    expect(dependencies).toEqual({ hono: '4.13.19', zod: '4.6.7' })
  })

  it('packageManifest() rejects workspace packages that depend on different versions of the same package', () => {
    const workspace = [
      of({ dependencies: { zod: '4.6.7' } }),
      of({ name: '@x/a', dependencies: { zod: '4.6.8' } }),
    ]
    expect(() => packageManifest(workspace, '')).toThrow('@x/a uses zod 4.6.8')
  })

  it('packageManifest() bundles patched dependencies, and makes the SDK of OpenTelemetry an optional peer dependency', () => {
    const dependencies = {
      postgres: '3.4.9',
      'postgres-x': '1.0.0',
      '@opentelemetry/sdk-node': '0.301.0',
    }
    expect(packageManifest([of({ dependencies })], PATCHES)).toMatchObject({
      dependencies: { postgres: '3.4.9', 'postgres-x': '1.0.0' },
      bundleDependencies: ['postgres'],
      peerDependencies: { '@opentelemetry/sdk-node': '0.301.0' },
      peerDependenciesMeta: { '@opentelemetry/sdk-node': { optional: true } },
    })
  })

  it('packageManifest() bundles a package if an override removes its dependencies, because npm ignores the override', () => {
    const dependencies = { '@x/page': '1.0.0', '@x/page-2': '1.0.0' }
    const overrides = "overrides:\n  '@x/page>vue': '-'\n"
    expect(packageManifest([of({ dependencies })], overrides).bundleDependencies).toEqual([
      '@x/page',
    ])
  })

  it('packageManifest() exports compiled files with their declarations, and lists the versions of TypeScript and of the types of Node', () => {
    const manifest = packageManifest([of({})], '')
    expect(manifest.exports['.']).toEqual({ types: './src/api.d.ts', default: './src/api.js' })
    expect(manifest.devDependencies).toEqual({ typescript: '7.0.2', '@types/node': '24.19.2' })
  })
})
