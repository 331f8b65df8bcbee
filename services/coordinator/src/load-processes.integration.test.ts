import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { until } from '@integration-host/shared/test-support/eventually'
import {
  listeningUrl,
  startProcess,
  type StartedProcess,
} from '@integration-host/shared/test-support/start-process'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type Backends, environmentOf, openBackends, serviceKey } from '../test-support/fixture.ts'

const main = fileURLToPath(new URL('./main.ts', import.meta.url))

describe('a coordinator whose PROCESSES names a folder', () => {
  let backends: Backends
  let folder: string
  beforeEach(async () => {
    backends = await openBackends('real', { Good: ['one'], Other: ['one'] })
    folder = await mkdtemp(join(tmpdir(), 'processes-'))
  })
  afterEach(async () => {
    await backends[Symbol.asyncDispose]()
    await rm(folder, { recursive: true })
  })

  const put = (file: string, text: string): Promise<void> => writeFile(join(folder, file), text)
  const start = (env: Readonly<Record<string, string>> = {}): StartedProcess =>
    startProcess([main], { env: { ...environmentOf(backends), PROCESSES: folder, ...env } })
  const good = `import { defineProcess } from 'integration-host'
    export default defineProcess('Good').step('one', (step) => step.complete(step.initialData))`

  it('a coordinator runs the processes that it can load, and reports a faulty file in its log, /health/ready and a metric', async () => {
    await put('good.ts', good)
    await put(
      'broken.ts',
      `import { defineProcess } from 'integration-host'\n\nexport default defineProcess('B', ;`,
    )
    await using coordinator = start()
    const url = await listeningUrl(coordinator)
    const headers = { Authorization: `Bearer ${serviceKey}`, 'Content-Type': 'application/json' }
    await until(async () => (await fetch(`${url}/health/ready`)).ok)

    const body = '{"TransactionID": "1", "InitialData": 5}'
    const path = `${url}/processes/Good/transactions`
    await until(async () => (await fetch(path, { method: 'POST', headers, body })).ok)
    await until(async () => {
      const run = (await (await fetch(`${path}/1`, { headers })).json()) as { Status?: string }
      return run.Status === 'Completed'
    })
    expect(await (await fetch(`${url}/health/ready`)).json()).toMatchObject({
      status: 'ready',
      dependencies: {
        processes: { status: 'down', reason: 'not loaded: broken.ts:3 (SyntaxError)' },
      },
    })
    expect(await (await fetch(`${url}/metrics`)).text()).toMatch(
      /^coordinator_process_files_failed\{[^}]*\} 1$/m,
    )
    const lines = coordinator.output().split('\n').filter(Boolean)
    expect(lines.map((line) => JSON.parse(line))).toContainEqual(
      expect.objectContaining({
        msg: 'process is not loaded',
        level: 'error',
        file: join(folder, 'broken.ts'),
        line: 3,
        reason: 'SyntaxError: Expression expected',
      }),
    )
  })

  const withSettings = `import { defineProcess, secret, z } from 'integration-host'
    export default defineProcess('Good', { settings: { url: z.url(), key: secret() } })
      .step('one', (step) => step.complete(step.settings.url))`

  it('a coordinator reports its own faulty settings and those of its processes in one message, without their values', async () => {
    await put('good.ts', withSettings)
    await using coordinator = start({ PREFETCH: 'value-1', GOOD_URL: 'value-2' })
    expect(await coordinator.ended).toMatchObject({ code: 1 })
    const output = coordinator.output()
    expect(output.match(/not usable/g)).toHaveLength(1)
    for (const fault of ['PREFETCH: ', 'GOOD_URL: ', 'GOOD_KEY: is missing'])
      expect(output).toContain(fault)
    expect(output).not.toContain('value-')
  })

  it('a coordinator runs a process only when all settings of the process are set, and runs other processes meanwhile', async () => {
    await put('good.ts', withSettings)
    await put('other.ts', good.replace('Good', 'Other'))
    const processesOf = async (env: Readonly<Record<string, string>>) => {
      await using coordinator = start(env)
      const url = await listeningUrl(coordinator)
      await until(async () => (await fetch(`${url}/health/ready`)).ok)
      const headers = { Authorization: `Bearer ${serviceKey}` }
      const { items } = (await (await fetch(`${url}/processes`, { headers })).json()) as {
        items: readonly { Process: string }[]
      }
      const report = await (await fetch(`${url}/health/ready`)).text()
      return { names: items.map(({ Process }) => Process), report, output: coordinator.output() }
    }
    const without = await processesOf({ GOOD_URL: 'https://erp.example/' })
    expect(without.names).toEqual(['Other'])
    expect(without.report).toContain('not loaded: good.ts (settings)')
    expect(without.output).toContain('its settings are not usable: GOOD_KEY: is missing')
    const set = { GOOD_URL: 'https://erp.example/', GOOD_KEY: 'key-of-the-erp' }
    const both = await processesOf(set)
    expect(both.names).toEqual(['Good', 'Other'])
    expect(both.report + both.output).not.toContain('key-of-the-erp')
  })

  it('a coordinator keeps running while its process folder is removed, and the next start reports the missing folder', async () => {
    await put('good.ts', good)
    const other = join(folder, 'other')
    await mkdir(other)
    await writeFile(join(other, 'other.ts'), good.replace('Good', 'Other'))
    const headers = { Authorization: `Bearer ${serviceKey}`, 'Content-Type': 'application/json' }
    const env = { PROCESSES: `${folder},${other}` }
    const run = async (url: string, id: string): Promise<void> => {
      const path = `${url}/processes/Good/transactions`
      const body = JSON.stringify({ TransactionID: id, InitialData: 5 })
      await until(async () => (await fetch(path, { method: 'POST', headers, body })).ok)
      await until(async () => {
        const { Status } = (await (await fetch(`${path}/${id}`, { headers })).json()) as {
          Status?: string
        }
        return Status === 'Completed'
      })
    }
    {
      await using coordinator = start(env)
      const url = await listeningUrl(coordinator)
      await run(url, 'before')
      await rm(other, { recursive: true })
      await rm(join(folder, 'good.ts'))
      await run(url, 'after')
    }
    await put('good.ts', good)
    await using again = start(env)
    await run(await listeningUrl(again), 'again')
    expect(again.output()).toContain(`"file":"${other}","reason":"the folder does not exist"`)
  })

  it('a coordinator exits with 1 and names both files if they define processes with the same name', async () => {
    await put('first.ts', good)
    await put('second.ts', good)
    await using coordinator = start()
    expect(await coordinator.ended).toMatchObject({ code: 1 })
    expect(coordinator.output()).toContain(
      `two processes have the name Good: ${join(folder, 'first.ts')} and ${join(folder, 'second.ts')}`,
    )
  })
})
