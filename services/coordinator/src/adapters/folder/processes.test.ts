import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { loadProcesses } from './processes.ts'

const definition = new URL('../../process/definition.ts', import.meta.url).href

describe('loading the processes of a folder', () => {
  let folder: string
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'processes-'))
    await writeFile(join(folder, 'package.json'), '{"type":"module"}')
  })
  afterEach(() => rm(folder, { recursive: true }))
  const put = (file: string, text: string) => writeFile(join(folder, file), text)
  const process = (name: string) =>
    `import { defineProcess } from '${definition}'
     export default defineProcess('${name}', { steps: { one: (step) => step.complete() } })`

  it('loadProcesses() loads the demo process OrderProcess and keeps the order of its steps', async () => {
    const processes = await loadProcesses()
    expect(processes.get('OrderProcess')).toMatchObject({
      requireInternet: true,
      stepNames: ['order', 'report', 'csv'],
    })
  })

  it('loadProcesses() loads every process file of a folder and ignores test files', async () => {
    await put('a.ts', process('A'))
    await put('b.ts', process('B'))
    await put('b.test.ts', 'throw new Error("a test")')
    expect([...(await loadProcesses(folder)).keys()]).toEqual(['A', 'B'])
  })

  it.each([
    ['does not parse', 'export default {'],
    ['throws while it is loaded', 'throw new Error("no")'],
    ['exports nothing', 'export const a = 1'],
    ['exports something else', 'export default 5'],
    ['gives its process an invalid name', process('no good')],
    [
      'has no steps',
      `import { defineProcess } from '${definition}'\nexport default defineProcess('A', { steps: {} })`,
    ],
    [
      'has a step that is not a function',
      `import { defineProcess } from '${definition}'\nexport default defineProcess('A', { steps: { one: 1 } })`,
    ],
  ])(
    'loadProcesses() rejects a process file that %s, and names the file in the error',
    async (_, text) => {
      await put('broken.ts', text)
      await expect(loadProcesses(folder)).rejects.toMatchObject({
        name: 'StartupError',
        message: expect.stringContaining('broken.ts'),
      })
    },
  )

  it('loadProcesses() rejects two files that define processes of the same name', async () => {
    await put('a.ts', process('A'))
    await put('b.ts', process('A'))
    await expect(loadProcesses(folder)).rejects.toThrow('b.ts defines the process A')
  })
})
