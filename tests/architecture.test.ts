import { globSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, expect, it } from 'vitest'
import {
  domainFolderOf,
  importViolations,
  platform,
  technology,
  type Sources,
  type Workspace,
} from './support/import-rules.ts'

const root = join(import.meta.dirname, '..')

describe('the import direction of the source files', () => {
  it('every source file respects the import direction', () => {
    expect(importViolations(readSources(), readWorkspace())).toEqual([])
  })

  it('the import rules cover every domain folder of every service', () => {
    const folders = new Set([...readSources().keys()].map(domainFolderOf))
    expect([...folders]).toEqual(
      expect.arrayContaining([
        'services/token-service/src/authorization',
        'services/token-service/src/credential',
        'services/token-service/src/provider',
        'services/accounting-gateway/src/proxy',
        'services/accounting-gateway/src/realm',
        'services/coordinator/src/run',
        'services/coordinator/src/step',
        'services/coordinator/src/schedule',
        'services/coordinator/src/worker',
        'services/coordinator/src/processes',
        'services/webhook-receiver/src/delivery',
        'services/console/src/isomorphic',
        'services/console/src/session',
        'services/console/src/view',
      ]),
    )
  })
})

describe('the check of the import direction', () => {
  it.each(technology)('the import check reports the library %s in a domain folder', (name) => {
    const path = 'services/coordinator/src/worker/worker.ts'
    expect(violationsOf({ [path]: `import type { X } from '${name}'` })).toEqual([
      `${path} imports ${name}: technology belongs in adapters/`,
    ])
    expect(violationsOf({ [path]: `const x = await import('${name}/deeper')` })).toHaveLength(1)
    expect(violationsOf({ 'services/coordinator/src/adapters/x.ts': `import '${name}'` })).toEqual(
      [],
    )
  })

  it.each(platform)('the import check reports the Node module %s in a domain folder', (name) => {
    const path = 'services/coordinator/src/step/step.ts'
    expect(violationsOf({ [path]: `import { x } from '${name}'` })).toEqual([
      `${path} imports ${name}: files, sockets and threads belong in adapters/`,
    ])
    expect(violationsOf({ [path]: `import { x } from '${name}/promises'` })).toHaveLength(1)
    expect(violationsOf({ 'services/coordinator/src/adapters/x.ts': `import '${name}'` })).toEqual(
      [],
    )
  })

  it('the import check allows a domain folder to import timers and Node modules that only compute', () => {
    const path = 'services/coordinator/src/step/step.ts'
    for (const name of ['node:crypto', 'node:path', 'node:timers/promises', 'node:util'])
      expect(violationsOf({ [path]: `import { x } from '${name}'` })).toEqual([])
  })

  it('the import check reports forbidden imports that span several lines, re-export names or only have side effects', () => {
    const path = 'services/token-service/src/credential/refresh.ts'
    const text = `import {\n  a,\n  b,\n} from 'ioredis'\nexport * from 'hono'\nimport 'pino'`
    expect(violationsOf({ [path]: text })).toHaveLength(3)
  })

  it('the import check reports an import that follows a type declaration', () => {
    const path = 'services/token-service/src/credential/refresh.ts'
    const sources = {
      [path]: `export type A = { a: number }\nimport { log } from '@example/shared/logger'`,
      'packages/shared/src/logger.ts': `import pino from 'pino'`,
    }
    expect(violationsOf(sources)).toHaveLength(1)
  })

  it('the import check reports process.env in the code of a domain folder, but not in a comment', () => {
    const path = 'services/accounting-gateway/src/realm/throttle.ts'
    expect(violationsOf({ [path]: 'const limit = process.env.LIMIT' })).toEqual([
      `${path} reads process.env: settings come in as parameters`,
    ])
    expect(violationsOf({ [path]: '// never process.env\n/* nor\n process.env */' })).toEqual([])
  })

  it('the import check reports a forbidden library that is imported indirectly, with the chain of imports', () => {
    const path = 'services/coordinator/src/step/step.ts'
    const sources = {
      [path]: `import { log } from '@example/shared/logger'`,
      'packages/shared/src/logger.ts': `import { format } from './format.ts'`,
      'packages/shared/src/format.ts': `import pino from 'pino'`,
    }
    expect(violationsOf(sources)).toEqual([
      `${path} loads technology by way of packages/shared/src/logger.ts → packages/shared/src/format.ts → pino`,
    ])
    expect(
      violationsOf({ ...sources, [path]: `import type { Log } from '@example/shared/logger'` }),
    ).toEqual([])
  })

  it('the import check reports a browser program that imports a Node module, server code, or a runtime value of a contract', () => {
    const path = 'services/console/app/pages/now.tsx'
    for (const line of [
      `import { x } from 'node:fs'`,
      `import { x } from '../../src/config.ts'`,
      `import type { x } from '../../src/session/role.ts'`,
      `import { x } from '../../src/contracts/now.ts'`,
      `import { x } from '@example/shared/logger'`,
    ])
      expect(violationsOf({ [path]: line }), line).toHaveLength(1)
    expect(
      violationsOf({
        [path]: `import type { x } from '../../src/contracts/now.ts'\nimport { y } from '../api.ts'\nimport { z } from 'react'\nimport { a } from '../../src/isomorphic/pages.ts'`,
      }),
    ).toEqual([])
  })

  it('the import check reports an isomorphic file that imports what only a browser or only a server has', () => {
    const path = 'services/console/src/isomorphic/pages.ts'
    for (const line of [
      `import { x } from 'node:path'`,
      `import { x } from '../../app/router.ts'`,
      `import { x } from '../view/installation.ts'`,
      `import { x } from '../contracts/now.ts'`,
    ])
      expect(violationsOf({ [path]: line }), line).toHaveLength(1)
    expect(
      violationsOf({
        [path]: `import type { x } from '../contracts/now.ts'\nimport { y } from './count-text.ts'`,
      }),
    ).toEqual([])
  })

  it('the import check reports a domain folder that imports the adapters or settings of its service', () => {
    const path = 'services/coordinator/src/worker/worker.ts'
    for (const target of [
      '../adapters/postgres/source.ts',
      '../config.ts',
      '../routes/events.ts',
      '../schedule/schedule-routes.ts',
    ]) {
      expect(violationsOf({ [path]: `import { x } from '${target}'` })).toEqual([
        `${path} imports ${target}: imports point inward, and this one leaves the domain`,
      ])
    }
    expect(violationsOf({ [path]: `import { x } from '../run/item.ts'` })).toEqual([])
  })

  it.each([
    ['services/coordinator/src/app.ts', '@example/token-service/service', 'never by import'],
    ['services/coordinator/src/app.ts', '../../token-service/src/app.ts', 'never by import'],
    ['packages/shared/src/x.ts', '@example/token-service/service', 'packages know nothing'],
    ['tests/flows/x.test.ts', '@example/token-service/config', 'only host/ imports services'],
    ['bench/x.ts', '@example/token-service', 'only host/ imports services'],
    ['services/coordinator/src/app.ts', '@example/host/host', 'host/ stands above'],
    ['packages/shared/src/x.ts', '../../../host/src/host.ts', 'host/ stands above'],
  ])('the import check reports that %s imports %s', (path, specifier, reason) => {
    const violations = violationsOf({ [path]: `import { x } from '${specifier}'` })
    expect(violations).toEqual([expect.stringContaining(reason)])
  })

  it('the import check allows host/ and bench/order-process/ to import services, and every file to import the shared package and the client', () => {
    expect(
      violationsOf({
        'host/src/host.ts': `import { start } from '@example/token-service/service'`,
        'bench/order-process/tools.ts': `import { start } from '@example/token-service/service'`,
        'services/coordinator/src/step/step.ts': `import { a } from '@example/shared/contracts/steps'`,
        'services/coordinator/src/adapters/companies.ts': `import { a } from '@example/client/service'`,
        'packages/cli/src/service-api.ts': `import { a } from '@example/client/service'`,
        'tests/flows/x.test.ts': `import { host } from '@example/host/host'`,
        'packages/shared/src/contracts/steps.ts': `import { z } from 'zod'`,
      }),
    ).toEqual([])
  })
})

function violationsOf(files: Readonly<Record<string, string>>): string[] {
  const workspace: Workspace = new Map([
    [
      '@example/shared',
      {
        folder: 'packages/shared',
        doors: { './logger': './src/logger.ts', './contracts/*': './src/contracts/*.ts' },
      },
    ],
    ['@example/client', { folder: 'packages/client', doors: { './service': './src/service.ts' } }],
    [
      '@example/token-service',
      { folder: 'services/token-service', doors: { './service': './src/service.ts' } },
    ],
    ['@example/host', { folder: 'host', doors: { './host': './src/host.ts' } }],
  ])
  return importViolations(new Map(Object.entries(files)), workspace)
}

function readSources(): Sources {
  const files = globSync(
    '{services,packages,host,tests,bench,examples,scripts}/**/*.{ts,tsx,mjs}',
    {
      cwd: root,
      exclude: (path) => path.includes('node_modules'),
    },
  )
  return new Map(
    files
      // The examples in this test violate the rules on purpose, so the test itself is not checked.
      .filter((file) => file !== 'tests/architecture.test.ts')
      .map((file) => [file, readFileSync(join(root, file), 'utf8')]),
  )
}

function readWorkspace(): Workspace {
  const manifests = globSync('{services/*,packages/*,host,tests,bench}/package.json', { cwd: root })
  return new Map(
    manifests.map((file) => {
      const { name, exports } = JSON.parse(readFileSync(join(root, file), 'utf8')) as {
        name: string
        exports: Record<string, string>
      }
      return [name, { folder: dirname(file), doors: exports }]
    }),
  )
}
