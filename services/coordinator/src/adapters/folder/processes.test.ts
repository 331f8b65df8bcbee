import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { loadProcesses } from './processes.ts'

const definition = new URL('../../process/definition.ts', import.meta.url).href

describe('the processes of the folder', () => {
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

  it('include the demo process, with its steps in order', async () => {
    const processes = await loadProcesses()
    expect(processes.get('OrderProcess')).toMatchObject({
      requireInternet: true,
      stepNames: ['order', 'report', 'csv'],
    })
  })

  it('include every file in the folder except tests', async () => {
    await put('a.ts', process('A'))
    await put('b.ts', process('B'))
    await put('b.test.ts', 'throw new Error("a test")')
    expect([...(await loadProcesses(folder)).keys()]).toEqual(['A', 'B'])
  })

  it.each([
    ['does not parse', 'export default {'],
    ['throws', 'throw new Error("no")'],
    ['exports nothing', 'export const a = 1'],
    ['exports something else', 'export default 5'],
    ['names a process badly', process('no good')],
    [
      'has no steps',
      `import { defineProcess } from '${definition}'\nexport default defineProcess('A', { steps: {} })`,
    ],
    [
      'has a step that is not a function',
      `import { defineProcess } from '${definition}'\nexport default defineProcess('A', { steps: { one: 1 } })`,
    ],
  ])('fail to load, naming the file, if it %s', async (_, text) => {
    await put('broken.ts', text)
    await expect(loadProcesses(folder)).rejects.toMatchObject({
      name: 'StartupError',
      message: expect.stringContaining('broken.ts'),
    })
  })

  it('fail to load if two files define the same process', async () => {
    await put('a.ts', process('A'))
    await put('b.ts', process('A'))
    await expect(loadProcesses(folder)).rejects.toThrow('b.ts defines the process A')
  })
})
