import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { startProcess } from '@integration-host/shared/test-support/start-process'
import { expect, it } from 'vitest'

const main = fileURLToPath(new URL('./main.ts', import.meta.url))

it('the embedded host starts despite an invalid process file, and prints example commands for one of the valid processes', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'processes-'))
  try {
    await writeFile(
      join(folder, 'good.ts'),
      `import { defineProcess } from 'integration-host'
       export default defineProcess('Good').step('one', (step) => step.complete())`,
    )
    await writeFile(join(folder, 'broken.ts'), 'export default defineProcess(')
    await using host = startProcess([main, '--free-ports'], {
      env: { DATA_DIR: join(folder, 'data'), PROCESSES: folder },
    })
    const [, url = ''] = await host.waitForOutput(/^ {2}coordinator +(\S+)$/m)
    expect(await (await fetch(`${url}/health/ready`)).json()).toMatchObject({
      dependencies: {
        processes: { status: 'down', reason: expect.stringMatching(/^not loaded: broken\.ts:1 /) },
      },
    })
    expect(host.output()).toContain('"processes":["Good"]')
    // demo-api can queue only transactions of OrderProcess, which is not loaded in this test.
    expect(host.output()).toContain(`${url}/processes/Good/transactions`)
    expect(host.output()).not.toMatch(/\/queue\?|OrderProcess/)
  } finally {
    await rm(folder, { recursive: true })
  }
})
