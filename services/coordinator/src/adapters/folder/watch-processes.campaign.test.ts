import { mkdir, mkdtemp, rename, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { TransactionView } from '@integration-host/shared/contracts/transaction'
import { eventually, until } from '@integration-host/shared/test-support/eventually'
import {
  listeningUrl,
  startProcess,
  type StartedProcess,
} from '@integration-host/shared/test-support/start-process'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { startTarget } from '../../../test-support/fake-target.ts'
import { loadWatchableProcesses } from './watch-processes.ts'

const program = fileURLToPath(new URL('../../../test-support/watch-main.ts', import.meta.url))
const key = 'watch-test-key-0123456789-0123456789'

/** Returns the source of a process with one step, which completes with a number. */
const returning = (result: string, name = 'Watched') =>
  `import { defineProcess } from 'integration-host'
   export default defineProcess('${name}', {}).step('one', (step) => step.complete(${result}))`

/** A process with a missing setting, so it cannot be loaded. */
const withSetting = `import { defineProcess } from 'integration-host'
   import { z } from 'zod'
   export default defineProcess('Unset', { settings: { missing: z.string() } }).step('one', (step) => step.complete(1))`

describe('a coordinator that watches its process files', () => {
  let root: string
  let folder: string
  let coordinator: StartedProcess
  let url: string
  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'watched-'))
    folder = join(root, 'processes')
    await mkdir(folder)
  })
  afterEach(async () => {
    await coordinator[Symbol.asyncDispose]()
    await rm(root, { recursive: true })
  })

  const put = (file: string, text: string): Promise<void> => writeFile(join(folder, file), text)
  async function start(setting = folder): Promise<void> {
    coordinator = startProcess([program], {
      env: {
        PORT: '0',
        SERVICE_API_KEY: key,
        DATA_DIR: join(root, 'data'),
        LOCAL_PULL_SECONDS: '0.2',
        PROCESSES: setting,
      },
      cwd: root,
    })
    url = await listeningUrl(coordinator)
  }
  const call = async (path: string, init: RequestInit = {}): Promise<unknown> => {
    const headers = { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' }
    return (await fetch(`${url}${path}`, { ...init, headers })).json()
  }
  const queue = (id: string, process: string, InitialData: unknown = null): Promise<unknown> =>
    call(`/processes/${process}/transactions`, {
      method: 'POST',
      body: JSON.stringify({ TransactionID: id, InitialData }),
    })
  const run = (id: string, process = 'Watched'): Promise<TransactionView> =>
    call(`/processes/${process}/transactions/${id}`) as Promise<TransactionView>
  /**
   * Queues runs until one of them has the expected result. Each run completes, whichever version of the step it
   * executes.
   */
  const untilResult = (result: unknown, process = 'Watched'): Promise<void> =>
    until(async () => {
      const id = crypto.randomUUID()
      await queue(id, process)
      await until(async () => (await run(id, process)).Status === 'Completed')
      return (await run(id, process)).Items[0]?.Data === result
    })
  const processesReport = async (): Promise<{
    readonly status: string
    readonly reason?: string
  }> => {
    const report = (await (await fetch(`${url}/health/ready`)).json()) as {
      dependencies: { processes: { status: string; reason?: string } }
    }
    return report.dependencies.processes
  }

  it('the coordinator reloads a changed process file or helper file, and loads a new process file', async () => {
    await put('a.ts', returning('1'))
    await start()
    await untilResult(1)
    await put('a.ts', returning('2'))
    await untilResult(2)
    await put('helper.ts', 'export const result = 3')
    await put('a.ts', `import { result } from './helper.ts'\n${returning('result')}`)
    await untilResult(3)
    await put('helper.ts', 'export const result = 4')
    await untilResult(4)
    await put('b.ts', returning('5', 'Another'))
    await coordinator.waitForOutput(/"processes":\["Watched","Another"\]/)
    await untilResult(5, 'Another')
    expect(await processesReport()).toMatchObject({ status: 'up' })
  })

  it('a reload of changed files neither aborts nor repeats the step in flight; the next step runs in the new version', async () => {
    await using target = await startTarget()
    const response = Promise.withResolvers<void>()
    target.on('/slow', async (_, reply) => {
      await response.promise
      reply.end('{}')
    })
    const steps = (result: string) =>
      `import { defineProcess } from 'integration-host'
       export default defineProcess('Watched', { dispatch: 'inline' })
         .step('call', (step) => step.execute({ url: step.initialData, method: 'POST' }, { parse: () => ${result} }))
         .step('next', (step) => step.complete(${result}))
         .step('added${result}', (step) => step.complete(${result}))`
    await put('a.ts', steps('1'))
    await start()
    await queue('in-flight', 'Watched', `${target.url}/slow`)
    await until(() => target.callsTo('/slow').length === 1)
    await put('a.ts', steps('2'))
    await coordinator.waitForOutput(/processes loaded[^]*processes loaded/)
    response.resolve()
    await until(async () => (await run('in-flight')).Status === 'Completed')
    const { Items, Attempts } = await run('in-flight')
    expect(Items.map(({ StepName, Data }) => [StepName, Data])).toEqual([
      ['call', 1],
      ['next', 2],
      ['added2', 2],
    ])
    expect(Attempts.map(({ Attempt, Outcome }) => [Attempt, Outcome])).toEqual([
      [1, 'completed'],
      [1, 'completed'],
      [1, 'completed'],
    ])
    expect(target.callsTo('/slow')).toHaveLength(1)
  })

  it('the coordinator keeps the last valid version of a broken file, reports its line, and reloads the corrected file', async () => {
    await put('a.ts', returning('1'))
    await start()
    await put('a.ts', `${returning('2')}\nconst broken = ;`)
    await coordinator.waitForOutput(/"line":3,"reason":"SyntaxError/)
    expect(await processesReport()).toMatchObject({
      status: 'down',
      reason: 'not loaded: a.ts:3 (SyntaxError)',
    })
    await untilResult(1)
    await put('a.ts', returning('3'))
    await untilResult(3)
    await eventually(async () => expect(await processesReport()).toMatchObject({ status: 'up' }))
  })

  it('the coordinator keeps its processes while two files define the same process, and while the process folder is missing', async () => {
    await put('a.ts', returning('1'))
    await start()
    await put('b.ts', returning('2'))
    await coordinator.waitForOutput(/two processes have the name Watched/)
    await untilResult(1)
    await rm(join(folder, 'b.ts'))
    await eventually(async () => expect(await processesReport()).toMatchObject({ status: 'up' }))
    await rename(folder, `${folder}-away`)
    await coordinator.waitForOutput(/the folder does not exist/)
    await untilResult(1)
    await rename(`${folder}-away`, folder)
    await put('a.ts', returning('4'))
    await untilResult(4)
  })

  it('while a process file is broken, its last valid version keeps running, even if a second file defines the same process', async () => {
    await put('a.ts', returning('1'))
    await start()
    await put('a.ts', `${returning('2')}\nconst broken = ;`)
    await coordinator.waitForOutput(/the last version that was loaded runs/)
    await put('b.ts', returning('2'))
    await coordinator.waitForOutput(
      /"file":"[^"]*b\.ts","reason":"two processes have the name Watched/,
    )
    await coordinator.waitForOutput(/until then it has no process that runs/)
    await untilResult(1)
    await put('a.ts', returning('3'))
    await untilResult(3)
    await rm(join(folder, 'a.ts'))
    await untilResult(2)
    await eventually(async () => expect(await processesReport()).toMatchObject({ status: 'up' }))
  })

  it('if the only process file of a folder is moved to another folder, the coordinator keeps its process', async () => {
    const other = join(root, 'other')
    await mkdir(other)
    await put('a.ts', returning('1'))
    await start(`${folder},${other}`)
    await untilResult(1)
    await rename(join(folder, 'a.ts'), join(other, 'a.ts'))
    await writeFile(join(other, 'a.ts'), returning('2'))
    await untilResult(2)
    expect(coordinator.output()).not.toContain('two processes have the name')
  })

  it('the log entry of a broken file mentions a running earlier version only if an earlier version was loaded', async () => {
    await put('a.ts', returning('1'))
    await put('b.ts', returning('2', 'Another'))
    await put('c.ts', withSetting)
    await start()
    await put('b.ts', returning('3'))
    await coordinator.waitForOutput(/b\.ts","reason":"two processes.*the last version that was/)
    await untilResult(2, 'Another')
    await put('c.ts', `${withSetting}\nconst broken = ;`)
    await coordinator.waitForOutput(/c\.ts","line":4.*until then it has no process that runs/)
    // Each later load logs the faults of b.ts and c.ts again, with the same texts.
    await put('a.ts', returning('4'))
    await coordinator.waitForOutput(/(?:c\.ts","line":4.*has no process that runs[^]*){2}/)
    expect(coordinator.output().match(/b\.ts","reason".*the last version that was/g)).toHaveLength(
      3,
    )
  })

  it('the coordinator reloads a changed file of a package', async () => {
    const main = join(root, 'node_modules/@acme/flows/main.js')
    const helper = join(root, 'node_modules/@acme/flows/helper.js')
    await mkdir(dirname(main), { recursive: true })
    await writeFile(join(dirname(main), 'package.json'), '{"type":"module","exports":"./main.js"}')
    await writeFile(main, returning('1'))
    await start('@acme/flows')
    await untilResult(1)
    await writeFile(helper, 'export const result = 2')
    await writeFile(main, `import { result } from './helper.js'\n${returning('result')}`)
    await untilResult(2)
    await writeFile(helper, 'export const result = 3')
    await untilResult(3)
    expect(await processesReport()).toMatchObject({ status: 'up' })
  })

  it('symbolic links that refer to themselves are reported, and the coordinator loads and reloads the other files', async () => {
    await symlink('b.ts', join(folder, 'b.ts'))
    await put('a.ts', returning('1'))
    await start()
    await untilResult(1)
    await symlink('c.ts', join(folder, 'c.ts'))
    await coordinator.waitForOutput(/c\.ts","reason":"the file cannot be read \(ELOOP\)/)
    await put('a.ts', returning('2'))
    await untilResult(2)
    expect(await processesReport()).toMatchObject({
      reason: 'not loaded: b.ts (ELOOP), c.ts (ELOOP)',
    })
  })
})

describe('watching process files', () => {
  it('the watcher reports a change that could not be applied, and applies the next change', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'watched-'))
    const errors: unknown[] = []
    const applied = Promise.withResolvers<void>()
    const { watch } = await loadWatchableProcesses([{ kind: 'folder', path: folder }], {})
    try {
      await using stack = new AsyncDisposableStack()
      stack.use(
        watch(
          async () => {
            if (errors.length > 0) return applied.resolve()
            throw new Error('the broker is unavailable')
          },
          (error) => errors.push(error),
        ),
      )
      await writeFile(join(folder, 'a.ts'), 'export const a = 1')
      await until(() => errors.length > 0)
      await writeFile(join(folder, 'b.ts'), 'export const b = 1')
      await applied.promise
      expect(errors).toEqual([new Error('the broker is unavailable')])
    } finally {
      await rm(folder, { recursive: true })
    }
  })
})
