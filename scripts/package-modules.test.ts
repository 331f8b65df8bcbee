import { describe, expect, it } from 'vitest'
import type { WorkspaceManifest } from './package-manifest.ts'
import { doorsOf, withRelativeImports } from './package-modules.ts'

const shared = {
  folder: 'packages/shared',
  name: '@integration-host/shared',
  exports: { './json': './src/json.ts', './tls/*': './src/tls/*.ts' },
} as unknown as WorkspaceManifest
const doors = doorsOf([shared])
const rewrite = (text: string, file = 'services/coordinator/src/app.js'): string =>
  withRelativeImports(file, text, doors)

describe('imports of the compiled package', () => {
  it.each([
    [
      `import { a } from '@integration-host/shared/json'`,
      `import { a } from '../../../packages/shared/src/json.js'`,
    ],
    [
      `export * from "@integration-host/shared/tls/files";`,
      `export * from "../../../packages/shared/src/tls/files.js";`,
    ],
    [
      `const x = await import('@integration-host/shared/json')`,
      `const x = await import('../../../packages/shared/src/json.js')`,
    ],
    [
      `type A = import("@integration-host/shared/json").A`,
      `type A = import("../../../packages/shared/src/json.js").A`,
    ],
    [`import {\n  a,\n} from '../b.ts'`, `import {\n  a,\n} from '../b.js'`],
    [
      `new Worker(new URL('a.worker.ts', import.meta.url), {})`,
      `new Worker(new URL('a.worker.js', import.meta.url), {})`,
    ],
    [`import { z } from 'zod'`, `import { z } from 'zod'`],
  ])('withRelativeImports() turns %s into %s', (before, after) => {
    expect(rewrite(before)).toBe(after)
  })

  it('withRelativeImports() starts the path of a module in the same folder with ./', () => {
    expect(rewrite(`import '@integration-host/shared/json'`, 'packages/shared/src/a.js')).toBe(
      `import './json.js'`,
    )
  })

  it('withRelativeImports() rejects an import of a workspace module that no package exports', () => {
    expect(() => rewrite(`import '@integration-host/shared/secret'`)).toThrow(
      'no workspace package exports @integration-host/shared/secret',
    )
    expect(() => rewrite(`import '@integration-host/other/json'`)).toThrow('no workspace package')
  })
})
