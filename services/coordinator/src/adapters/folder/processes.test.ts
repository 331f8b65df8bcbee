import { chmod, mkdir, mkdtemp, readdir, realpath, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { runProcess } from '@integration-host/shared/test-support/start-process'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { Loaded } from '../../../test-support/load-processes.ts'
import { loadProcesses } from './processes.ts'

const program = fileURLToPath(new URL('../../../test-support/load-processes.ts', import.meta.url))

let folder: string
beforeEach(async () => {
  folder = await realpath(await mkdtemp(join(tmpdir(), 'processes-')))
})
afterEach(async () => {
  await chmod(folder, 0o700)
  await rm(folder, { recursive: true })
})

const put = async (file: string, text: string): Promise<void> => {
  await mkdir(dirname(join(folder, file)), { recursive: true })
  await writeFile(join(folder, file), text)
}
const processOf = (name: string, result = '0') =>
  `import { defineProcess } from 'integration-host'
   export default defineProcess('${name}').step('one', () => ${result})`

/** Loads processes in a separate OS process, whose working directory is the folder. */
async function load(setting = folder): Promise<Loaded> {
  const { stdout, stderr } = await runProcess([program, setting], { cwd: folder })
  if (stdout === '') throw new Error(stderr)
  return JSON.parse(stdout) as Loaded
}

describe('loading the processes of a folder', () => {
  it('the loader loads the built-in process OrderProcess and keeps the order of its steps', async () => {
    const { definitions, failures } = await loadProcesses()
    expect(failures).toEqual([])
    expect(definitions.get('OrderProcess')).toMatchObject({
      requireInternet: true,
      stepNames: ['order', 'report', 'csv'],
    })
  })

  it('the loader loads TypeScript and JavaScript files, but no helper files, test files, declarations or subfolders', async () => {
    await put('a.ts', processOf('A', '"a" as string'))
    await put('b.mjs', processOf('B', '"b"'))
    await put('helper.ts', 'export const rate = 2')
    await put('constants.ts', 'export default { defaults: true }')
    await put('a.test.ts', 'throw new Error("defineProcess(")')
    await put('a.d.ts', 'export default defineProcess(')
    await put('.#a.ts', 'export default defineProcess(')
    await put('._a.ts', 'export default defineProcess(')
    await put('sub/c.ts', processOf('C'))
    expect(await load()).toEqual({ results: { A: 'a', B: 'b' }, failures: [] })
  })

  it('the loader loads a file that re-exports the default export of another file', async () => {
    await put('lib/a.ts', processOf('A'))
    await put('a.ts', `export { default } from './lib/a.ts'`)
    expect(await load()).toEqual({ results: { A: 0 }, failures: [] })
  })

  it('if a file throws a value that cannot be converted to text, the loader loads the other files', async () => {
    await put('a.ts', processOf('A'))
    await put('b.ts', 'throw Object.create(null) // defineProcess()')
    await put('c.ts', `export default { name: 'C', stepNames: ['a'], steps: new Map() }`)
    expect(await load()).toMatchObject({
      results: { A: 0 },
      failures: [
        { file: join(folder, 'b.ts'), reason: 'Error: a value that has no text was thrown' },
      ],
    })
  })

  it('the loader reports the line at which a file fails, whatever characters the path of the file contains', async () => {
    await put('a (1): b/a.ts', '\nthrow new Error("no rate") // defineProcess()')
    expect(await load('./a (1): b')).toMatchObject({ failures: [{ line: 2 }] })
  })

  it('if a file calls process.exit(), the loader reports the file and the line, and the OS process exits with an error', async () => {
    await put('a.ts', `import './helper.ts'\n${processOf('A')}`)
    await put('helper.ts', `const done = true\nif (done) process.exit()`)
    const { code, stderr } = await runProcess([program, folder])
    expect(stderr).toBe(
      `${join(folder, 'a.ts')}: process.exit() was called while this was imported (at ${join(folder, 'helper.ts')}:2)\n`,
    )
    expect(code).toBe(1)
  })

  it('the loader loads TypeScript files as ES modules, whether or not a package.json says so', async () => {
    await put('package.json', '{"type":"commonjs"}')
    await put('a.ts', processOf('A'))
    expect(await load()).toEqual({ results: { A: 0 }, failures: [] })
  })

  it('the loader loads CommonJS files, whose require gives the copies of the installation', async () => {
    await put(
      'a.js',
      `const { defineProcess } = require('integration-host')
       const { result } = require('./helper.cjs')
       module.exports = defineProcess('A').step('one', () => result)`,
    )
    await put(
      'helper.cjs',
      `const { z } = require('zod')
       const { defineStep } = require('integration-host')
       exports.result = typeof z.object + ' ' + typeof defineStep`,
    )
    await put('b.mjs', `import helper from './helper.cjs'\n${processOf('B', 'helper.result')}`)
    await put(
      'c.cjs',
      `Object.defineProperty(exports, '__esModule', { value: true })
       const integration_host_1 = require('integration-host')
       exports.default = (0, integration_host_1.defineProcess)('C').step('one', () => 0)`,
    )
    const result = 'function function'
    expect(await load()).toEqual({ results: { A: result, B: result, C: 0 }, failures: [] })
  })

  it('the loader loads a read-only folder and writes nothing into it', async () => {
    await put('a.ts', processOf('A'))
    await chmod(folder, 0o500)
    expect(await load()).toEqual({ results: { A: 0 }, failures: [] })
    expect(await readdir(folder)).toEqual(['a.ts'])
  })

  it('the loader resolves integration-host and zod to the copies of the installation, and other packages from the folder', async () => {
    for (const name of ['zod', 'integration-host', 'rates']) {
      await put(`node_modules/${name}/package.json`, `{"name":"${name}","main":"main.js"}`)
      await put(
        `node_modules/${name}/main.js`,
        `module.exports = { name: 'the folder has ${name}' }`,
      )
    }
    // A dependency in the folder still gets its own installed copy of zod.
    await put('node_modules/rates/main.js', `module.exports = require('zod')`)
    await put('helper.ts', `export { z } from 'zod'`)
    await put(
      'a.ts',
      `import { defineProcess, z as same } from 'integration-host'
       import { z } from 'zod'
       import { z as ofHelper } from './helper.ts'
       import rates from 'rates'
       export default defineProcess('A').step('one', () =>
         [z === same, z === ofHelper, z.number().parse(1), rates.name])`,
    )
    expect(await load()).toEqual({
      results: { A: [true, true, 1, 'the folder has zod'] },
      failures: [],
    })
  })

  it('if a process file is a symbolic link, the loader resolves its imports from the folder of the target', async () => {
    await put('..data/a.ts', processOf('A', '1'))
    await put('..data/b.ts', `import { nothing } from './c.ts'\n${processOf('B')}`)
    await symlink('..data/a.ts', join(folder, 'a.ts'))
    await symlink('..data/b.ts', join(folder, 'b.ts'))
    expect(await load()).toMatchObject({
      results: { A: 1 },
      failures: [{ file: join(folder, 'b.ts'), line: 1 }],
    })
  })

  it('the loader reports each file that cannot be loaded, with line and reason, and loads the other files', async () => {
    const define = `import { defineProcess } from 'integration-host'\n`
    await put('good.ts', processOf('Good'))
    await put('helper.ts', `export const rate = 2\nexport const broken = ;`)
    const faults: Readonly<Record<string, readonly [string, number | null, string]>> = {
      'parse.ts': [`${define}export default defineProcess('P', {\n  steps: ,`, 3, 'SyntaxError: '],
      'parse.js': [`${define}export default defineProcess('P', {\n  steps: ,`, 3, 'SyntaxError: '],
      'end.ts': [
        `${define}export default defineProcess('P', {\n  steps: {\n}\n`,
        4,
        'the file ends before a bracket, parenthesis or brace is closed',
      ],
      'enum.ts': [`${define}enum E { a }\ndefineProcess(E)`, 2, 'enum is not supported'],
      'throws.ts': [
        `${define}\nthrow new RangeError('no rate') // defineProcess(`,
        3,
        'RangeError: no rate',
      ],
      'text.ts': [`${define}throw 'no rate' // defineProcess(`, null, 'Error: no rate'],
      'undefined.ts': [`${define}export default defineProcess(nothing)`, 2, 'ReferenceError: '],
      'package.ts': [`${define}import 'no-such-package'\ndefineProcess()`, 2, "'no-such-package'"],
      'file.ts': [`${define}import './no-such-file.ts'\ndefineProcess()`, 2, "no-such-file.ts'"],
      'export.ts': [
        `${define}import { no_such_export } from 'zod'\ndefineProcess()`,
        2,
        'no_such_export',
      ],
      'viahelper.ts': [`import './helper.ts'\n${define}defineProcess()`, null, 'helper.ts:2)'],
      'name.ts': [`${define}export default defineProcess('no good')`, 2, 'no good'],
      'steps.ts': [
        `${define}export default defineProcess('A', { steps: {} })`,
        2,
        'no option steps',
      ],
      'chain.ts': [`${define}export default defineProcess('A')`, null, 'process A has no steps'],
      'concurrency.ts': [
        `${define}export default defineProcess('A', { concurrency: 0 }).step('a', () => null)`,
        2,
        'concurrency of A must be a whole number, 1 or more',
      ],
      'function.ts': [
        `${define}export default defineProcess('A').step('a', 1)`,
        2,
        'not a function',
      ],
      'limit.ts': [
        `${define}export default defineProcess('A', { targets: { erp: { url: 'http://erp', concurrent: 0 } } }).step('a', () => {})`,
        2,
        'process A: target erp: concurrent must be a whole number from 1 to 1000',
      ],
      'nothing.ts': [
        `${define}export const a = defineProcess('A').step('a', () => {})`,
        null,
        'as its default',
      ],
      'never.ts': [
        `${define}await new Promise(() => {})\ndefineProcess()`,
        null,
        'within 3 seconds',
      ],
    }
    for (const [file, [text]] of Object.entries(faults)) await put(file, text)
    const { results, failures } = await load()
    expect(results).toEqual({ Good: 0 })
    const found = failures.map(({ file, line, reason }) => [basename(file), line, reason])
    const expected = Object.entries(faults).map(([file, [, line, reason]]) => [
      file,
      line,
      expect.stringContaining(reason),
    ])
    const byFile = ([a]: readonly unknown[], [b]: readonly unknown[]): number =>
      String(a).localeCompare(String(b))
    expect(found.toSorted(byFile)).toEqual(expected.toSorted(byFile))
  })

  it('the loader loads process files that import each other, and reports a line that uses an uninitialized import', async () => {
    const beside = (name: string, other: string): string =>
      `import other from './${other}.ts'
       import { defineProcess } from 'integration-host'
       export default defineProcess('${name}').step('one', () => other.name)`
    await put('a.ts', beside('A', 'b'))
    await put('b.ts', beside('B', 'a'))
    expect(await load()).toMatchObject({ results: { A: 'B', B: 'A' }, failures: [] })
    await put('b.ts', `${beside('B', 'a')}\nconsole.log(other.name)`)
    const { failures } = await load()
    expect(failures).toContainEqual(
      expect.objectContaining({
        file: join(folder, 'b.ts'),
        line: 4,
        reason: expect.stringContaining("Cannot access 'other' before initialization"),
      }),
    )
  })

  it('the loader reports a path that is missing, is not a folder or has no process file, and loads the other folders', async () => {
    await put('good/a.ts', processOf('Good'))
    await put('empty/helper.ts', 'export const rate = 2')
    const loaded = await load('./good,./missing,./good/a.ts,./empty')
    expect(loaded).toMatchObject({
      results: { Good: 0 },
      failures: [
        { file: join(folder, 'missing'), reason: 'the folder does not exist' },
        { file: join(folder, 'good/a.ts'), reason: 'it is not a folder' },
        { file: join(folder, 'empty'), reason: 'the folder has no process file' },
      ],
    })
  })

  it('processes that import a shared target from a file of its own are loaded; a process with another target of this name is reported', async () => {
    const using = (name: string, from: string) =>
      `import { defineProcess } from 'integration-host'
       import erp from '${from}'
       export default defineProcess('${name}', { targets: { erp } }).step('one', () => 0)`
    const target = (perSecond: number) =>
      `import { defineTarget } from 'integration-host'
       export default defineTarget('erp', { url: 'http://erp.example', perSecond: ${perSecond} })`
    await put('erp.ts', target(5))
    await put('lib/erp.ts', target(6))
    await put('a.ts', using('A', './erp.ts'))
    await put('b.ts', using('B', './erp.ts'))
    await put('c.ts', using('C', './lib/erp.ts'))
    expect(await load()).toMatchObject({
      results: { A: 0, B: 0 },
      failures: [
        {
          file: join(folder, 'c.ts'),
          reason: `the shared target erp has other limits here than in ${join(folder, 'a.ts')}: define it once, and import it`,
        },
      ],
    })
  })

  it('the loader rejects two files that define processes of the same name, and reports both files', async () => {
    await put('a/first.ts', processOf('A'))
    await put('b/second.ts', processOf('A'))
    const { error } = await load('./a,./b')
    expect(error).toBe(
      `two processes have the name A: ${join(folder, 'a/first.ts')} and ${join(folder, 'b/second.ts')}`,
    )
  })
})

describe('loading the processes of a package', () => {
  it('the loader loads every process that a package exports, and resolves integration-host and zod to the copies of the installation', async () => {
    await put('node_modules/@acme/flows/package.json', '{"type":"module","exports":"./main.js"}')
    await put(
      'node_modules/@acme/flows/main.js',
      `import { defineProcess } from 'integration-host'
       import { z } from 'zod'
       export * from './more.js'
       export const rate = z.number().parse(2)
       export default defineProcess('Default').step('one', () => rate)`,
    )
    await put(
      'node_modules/@acme/flows/more.js',
      `import { defineProcess } from 'integration-host'
       export const more = defineProcess('More').step('one', () => 3)`,
    )
    expect(await load('@acme/flows')).toEqual({ results: { Default: 2, More: 3 }, failures: [] })
  })

  it('the loader reports a package that is not installed, fails to load or exports no process, and loads the other packages', async () => {
    await put('good/a.ts', processOf('Good'))
    await put('node_modules/broken/package.json', '{"type":"module","exports":"./main.js"}')
    await put('node_modules/broken/main.js', 'const a = 1\nthrow new Error("no licence")')
    await put('node_modules/none/package.json', '{"main":"main.js"}')
    await put('node_modules/none/main.js', 'module.exports = 1')
    const loaded = await load('missing-package,broken,none,./good')
    expect(loaded).toMatchObject({
      results: { Good: 0 },
      failures: [
        { file: 'missing-package', reason: 'no package of this name is installed' },
        {
          file: 'broken',
          reason: expect.stringMatching(/no licence \(at .*broken\/main\.js:2\)$/),
        },
        { file: 'none', reason: 'the package exports no process' },
      ],
    })
  })
})
