import { describe, expect, it } from 'vitest'
import type { WorkspaceManifest } from './package-manifest.ts'
import { doorsOf, neededDeclarations, withRelativeImports } from './package-modules.ts'

const shared = {
  folder: 'packages/shared',
  name: '@integration-host/shared',
  exports: { './json': './src/json.ts', './tls/*': './src/tls/*.ts' },
} as unknown as WorkspaceManifest
const doors = doorsOf([shared])
const rewrite = (text: string, file = 'services/coordinator/src/app.js'): string =>
  withRelativeImports(file, text, doors)

describe('withRelativeImports() for the compiled package', () => {
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

  it('withRelativeImports() begins the path of a module in the same folder with ./', () => {
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

describe('neededDeclarations() for the package', () => {
  const files: Readonly<Record<string, string>> = {
    'host/src/door.d.ts': `import type { A } from '../../services/a.js'\nexport type { Z } from 'zod'\n`,
    'services/a.d.ts': `export type A = import('./b.js').B`,
    'services/b.d.ts': `/**\n * Example: import type a from './example.js'\n */\nimport type { D } from '../host/src/door.js'`,
    'services/unused.d.ts': `export type U = string`,
  }
  const read = (file: string): string => {
    const text = files[file]
    if (text === undefined) throw new Error(`no file ${file}`)
    return text
  }

  it('neededDeclarations() returns the given files and all files that they import, even in a cycle', () => {
    expect([...neededDeclarations(['host/src/door.d.ts'], read)].toSorted()).toEqual([
      'host/src/door.d.ts',
      'services/a.d.ts',
      'services/b.d.ts',
    ])
  })

  it('neededDeclarations() throws if a needed declaration does not exist', () => {
    expect(() => neededDeclarations(['services/gone.d.ts'], read)).toThrow('no file services/gone')
  })
})
