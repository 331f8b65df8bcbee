import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { createHmac } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { runProcess, startProcess } from '@integration-host/shared/test-support/start-process'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { STANDARD_PORTS } from './host.ts'

const CLI = fileURLToPath(new URL('cli.ts', import.meta.url))
const REALM = '4620816365291'
const SALE = '{"customer": "Ada", "amount": 66}'

let folder: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'integration-host-project-'))
})
afterEach(() => rm(folder, { recursive: true }))

const cli = (args: readonly string[], env = {}) => runProcess([CLI, ...args], { cwd: folder, env })
const init = (name: string) => cli(['init', name])

describe('the command `integration-host init`', () => {
  it('`integration-host init` creates a project, and prints the next steps for the user', async () => {
    const { code, stdout, stderr } = await init('My Processes')
    expect([code, stderr]).toEqual([0, ''])
    for (const next of ['cd My Processes', 'npm install', 'npx --no -- integration-host dev'])
      expect(stdout).toContain(next)
    const project = join(folder, 'My Processes')
    expect((await readdir(project, { recursive: true })).toSorted()).toEqual([
      '.env.example',
      '.gitignore',
      'README.md',
      'compose.env',
      'compose.processes.yaml',
      'compose.yaml',
      'package.json',
      'processes',
      'processes/invoice.test.ts',
      'processes/invoice.ts',
      'tsconfig.json',
    ])
    expect(JSON.parse(await readFile(join(project, 'package.json'), 'utf8'))).toMatchObject({
      name: 'my-processes',
      dependencies: { 'integration-host': expect.stringMatching(/^file:.*\.tgz$/) },
      devDependencies: { typescript: expect.stringMatching(/^\d/) },
    })
  })

  it('`integration-host init` writes no file into a folder that is not empty', async () => {
    await writeFile(join(folder, 'mine.txt'), '')
    const { code, stderr } = await init('.')
    expect([code, stderr]).toEqual([2, expect.stringContaining('is not empty')])
    expect(stderr).toContain('integration-host init my-processes')
    expect(await readdir(folder)).toEqual(['mine.txt'])
  })

  it('`integration-host init` adds a project to a folder in which npm has installed packages, and keeps their versions', async () => {
    const dependencies = { 'integration-host': 'file:../mine.tgz', zod: '4.0.0' }
    await writeFile(join(folder, 'package.json'), JSON.stringify({ dependencies }))
    await mkdir(join(folder, 'node_modules'))
    expect((await init('.')).code).toBe(0)
    const manifest = JSON.parse(await readFile(join(folder, 'package.json'), 'utf8'))
    expect(manifest).toMatchObject({ dependencies, scripts: { dev: 'integration-host dev' } })
    expect(await readdir(folder)).toContain('processes')
  })

  it('`integration-host init` rejects the path of a file, a missing argument, and a second argument', async () => {
    await writeFile(join(folder, 'mine.txt'), '')
    expect((await init('mine.txt')).stderr).toContain('is not a folder')
    expect((await init('mine.txt/inner')).stderr).toContain('cannot be made (ENOTDIR)')
    expect((await cli(['init'])).stderr).toContain('is needed')
    expect((await cli(['init', 'a', 'b'])).stderr).toContain("Unexpected argument 'b'")
  })

  it('the help of `init`, `dev` and `start` lists no options of the commands that call a running installation', async () => {
    for (const command of ['init', 'dev', 'start']) {
      const { code, stdout } = await cli([command, '--help'])
      expect([code, stdout]).toEqual([0, expect.stringContaining(`integration-host ${command}`)])
      expect(stdout).not.toContain('--url')
    }
  })
})

describe('the command `integration-host dev`', () => {
  const dev = () => startProcess([CLI, 'dev', '--free-ports'], { cwd: folder })

  it('`integration-host dev` runs the process of a new project, and prints each step with the error that the provider returned', async () => {
    expect((await init('.')).code).toBe(0)
    await using started = dev()
    // The commands find the free ports in the data folder.
    await started.waitForOutput(/connected company/)
    const queued = await cli(['transactions', 'queue', 'sale-1', '--realm', REALM, '--data', SALE])
    expect([queued.stdout, queued.stderr]).toEqual(['sale-1 is queued.\n', ''])
    await started.waitForOutput(/Invoice sale-1 {2}Completed/)
    expect(started.output()).toMatch(/Invoice sale-1 {2}customer {2}\w+ {2}200 {2}\d+ ms\n/)
    expect(started.output()).toMatch(/Invoice sale-1 {2}invoice {2}\w+ {2}200 {2}\d+ ms\n/)
    const doctor = await cli(['doctor'])
    expect([doctor.code, doctor.stdout]).toEqual([
      0,
      expect.stringContaining('the embedded host has none'),
    ])
    // The provider rejects a second customer with the same name in one company.
    const second = await cli(['transactions', 'queue', 'sale-2', '--realm', REALM, '--data', SALE])
    expect(second.code).toBe(0)
    await started.waitForOutput(/Invoice sale-2 {2}Failed/)
    expect(started.output()).toMatch(
      /Invoice sale-2 {2}customer {2}\w+ {2}400 {2}\d+ ms {2}6240 Duplicate Name Exists Error: \S(?: ?\S)+\n/,
    )
    expect(await started.stop('SIGTERM')).toBe(0)
    // The companies in the data folder are connected to the sandbox. A real provider would reject their tokens.
    const provider = { DISCOVERY_URL: 'http://127.0.0.1:1/', CLIENT_ID: 'a', CLIENT_SECRET: 'b' }
    const { code, stderr } = await cli(['start', '--free-ports'], provider)
    expect([code, stderr]).toEqual([
      1,
      expect.stringContaining('has companies of the sandbox provider'),
    ])
  })

  it('`integration-host dev` fills the books of the connected company with sample objects at every start', async () => {
    expect((await init('.')).code).toBe(0)
    for (const start of ['the first start', 'the second start']) {
      await using started = dev()
      await started.waitForOutput(/connected company .* with sample books/)
      const [, sandbox = ''] = await started.waitForOutput(/sandbox-provider +(http:\S+)/)
      const response = await fetch(`${sandbox}/sandbox/companies/${REALM}/books`, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
      })
      // The sandbox creates its sample objects only in books that have none.
      expect(await response.json(), start).toEqual({ created: 0 })
    }
  })

  it('`integration-host dev` reloads a changed process file, but keeps the last valid version if the file is invalid', async () => {
    expect((await init('.')).code).toBe(0)
    const file = join(folder, 'processes/counter.ts')
    const counter = (result: number) =>
      `import { defineProcess } from 'integration-host'
       export default defineProcess('Counter').step('count', (step) => step.complete(${result}))\n`
    await writeFile(file, counter(1))
    await writeFile(join(folder, 'processes/broken.ts'), '// defineProcess()')
    await using started = dev()
    await started.waitForOutput(/process is not loaded.*broken\.ts.*until then/)
    await started.waitForOutput(/connected company/)
    const resultOf = async (id: string): Promise<unknown> => {
      const args = ['--process', 'Counter', '--json']
      expect((await cli(['transactions', 'queue', id, ...args])).code).toBe(0)
      await started.waitForOutput(new RegExp(`Counter ${id} {2}Completed`))
      const { Items } = JSON.parse((await cli(['transactions', 'show', id, ...args])).stdout)
      return Items[0].Data
    }
    const loaded = /processes loaded.*Counter/g
    const reloaded = (times: number) =>
      started.waitForOutput(new RegExp(`(?:${loaded.source}[^]*){${times}}`))
    expect(await resultOf('before')).toBe(1)
    await writeFile(file, counter(2))
    await reloaded(2)
    expect(await resultOf('after')).toBe(2)
    await writeFile(file, `${counter(3)}\nconst = 4\n`)
    await started.waitForOutput(/process is not loaded.*counter\.ts.*line=4/)
    expect(started.output()).not.toContain('restart')
    expect(await resultOf('broken')).toBe(2)
    // The coordinator's health report contains the file name too, but `dev` does not print this report. So only one
    // line of the output names the file.
    expect(started.output().match(/counter\.ts/g)).toHaveLength(1)
    // The last valid version of the invalid file stays loaded, so its process is still listed.
    expect(started.output().match(loaded)).toHaveLength(3)
  })

  it('`integration-host dev` uses the sandbox even if the file .env names a real provider', async () => {
    expect((await init('.')).code).toBe(0)
    await writeFile(
      join(folder, '.env'),
      'DISCOVERY_URL=https://provider.invalid/\nCLIENT_ID=mine\nDATA_DIR=elsewhere\n',
    )
    await using started = dev()
    await started.waitForOutput(/connected company {3}Rosewood Interiors/)
    expect(started.output()).toContain('all data is in elsewhere')
    expect(started.output()).toContain('npx --no -- integration-host console sign-in')
    expect(started.output()).not.toContain('sign-in#')
    expect(await started.stop('SIGINT')).toBe(0)
    expect(await readdir(join(folder, 'elsewhere'))).toContain('sandbox-provider.bin')
  })

  it('`integration-host dev` fails with a message that names the port if another OS process uses the port', async () => {
    await mkdir(join(folder, 'processes'))
    const port = STANDARD_PORTS.sandboxProvider
    const other = createServer().listen(port, '127.0.0.1')
    // This server cannot listen if another OS process of this machine already uses the port. The test works in this
    // case too, because the port is in use.
    await Promise.race([once(other, 'listening'), once(other, 'error')])
    try {
      const { code, stderr } = await cli(['dev'])
      expect([code, stderr]).toEqual([
        1,
        expect.stringMatching(
          /port 72\d\d is taken by another process: stop it, or use .*--free-ports/,
        ),
      ])
    } finally {
      other.close()
    }
  })

  it('`integration-host dev` rejects a folder without processes, a missing folder, and unknown options', async () => {
    expect(await cli(['dev'])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('has no folder processes'),
    })
    expect((await cli(['dev', 'missing'])).stderr).toContain('missing is not a folder')
    expect((await cli(['dev', '--json'])).stderr).toContain("Unknown option '--json'")
    expect((await cli(['dev', '--bogus'])).stderr).toContain("Unknown option '--bogus'")
    expect(await readdir(folder)).toEqual([])
  })
})

const TOKEN_FILE = 'data/secrets/webhook_verifier_tokens'
const INVOICE = {
  specversion: '1.0',
  id: 'event-1',
  type: 'qbo.invoice.created.v1',
  time: '2026-11-23T17:05:09Z',
  intuitentityid: '129',
  intuitaccountid: REALM,
  data: {},
}
const EXPORT = `import { defineProcess } from 'integration-host'
export default defineProcess('Export', {
  on: [{ provider: 'intuit', entity: 'Invoice', operations: ['create'] }],
}).step('export', (step) => step.complete())
`
/** The process `Export` with an `input` schema that rejects every change. */
const REJECTING_EXPORT = `import { z } from 'zod'
${EXPORT.replace('on:', 'input: z.never(),\n  on:')}`
const RUN = `Invoice-129@2026-11-23T17:05:09Z/${REALM}`

describe('a webhook that the provider sends to the embedded host', () => {
  const dev = () => startProcess([CLI, 'dev', '--free-ports'], { cwd: folder })
  const addressOf = async (started: ReturnType<typeof dev>, service: string): Promise<string> =>
    (await started.waitForOutput(new RegExp(`${service} +(http:\\S+)`)))[1] ?? ''
  const coordinatorOf = async (started: ReturnType<typeof dev>) => ({
    COORDINATOR_URL: await addressOf(started, 'coordinator'),
  })

  beforeEach(async () => {
    await mkdir(join(folder, 'processes'))
  })

  /** Delivers the webhook, and kills the host as soon as the host has responded with 200. */
  async function deliverAndKill(host: ReturnType<typeof dev>): Promise<void> {
    const token = (await readFile(join(folder, TOKEN_FILE), 'utf8')).trim()
    const body = JSON.stringify([INVOICE])
    const signature = createHmac('sha256', token).update(body).digest('base64')
    const receiver = await addressOf(host, 'webhook-receiver')
    const response = await fetch(`${receiver}/webhooks/intuit`, {
      method: 'POST',
      headers: { 'intuit-signature': signature },
      body,
    })
    expect(response.status).toBe(200)
    await host.stop('SIGKILL')
  }

  it.each(['running', 'paused'])(
    'after SIGKILL and a restart, a webhook that the embedded host had accepted with 200 starts its run (the process was %s)',
    async (state) => {
      await writeFile(join(folder, 'processes/export.ts'), EXPORT)
      {
        await using first = dev()
        await first.waitForOutput(/connected company/)
        if (state === 'paused')
          expect(
            (await cli(['processes', 'pause', 'Export'], await coordinatorOf(first))).code,
          ).toBe(0)
        await deliverAndKill(first)
      }
      await using second = dev()
      const env = await coordinatorOf(second)
      if (state === 'paused')
        expect((await cli(['processes', 'resume', 'Export'], env)).code).toBe(0)
      const show = ['transactions', 'show', RUN, '--process', 'Export', '--json']
      await eventually(async () => {
        const { stdout } = await cli(show, env)
        expect(JSON.parse(stdout || '{}')).toMatchObject({ Status: 'Completed' })
      })
    },
    120_000, // the sweeper publishes the step of the run after 15 s
  )

  it('the embedded host dead-letters an accepted webhook after SIGKILL and a restart if the process rejects the data', async () => {
    await writeFile(join(folder, 'processes/export.ts'), REJECTING_EXPORT)
    {
      await using first = dev()
      await first.waitForOutput(/connected company/)
      await deliverAndKill(first)
    }
    await using second = dev()
    const { stdout } = await cli(['dead-letters', 'list', '--json'], await coordinatorOf(second))
    expect(JSON.parse(stdout)).toMatchObject({
      Process: 'Export',
      Reason: expect.stringMatching(/^input_invalid/),
    })
  }, 60_000)
})

describe('the command `integration-host start`', () => {
  it('`integration-host start` without a verifier token warns which processes get no webhooks of the provider', async () => {
    await mkdir(join(folder, 'processes'))
    await writeFile(join(folder, 'processes/export.ts'), EXPORT)
    const env = { DISCOVERY_URL: 'http://127.0.0.1:1/', CLIENT_ID: 'a', CLIENT_SECRET: 'b' }
    await using started = startProcess([CLI, 'start', '--free-ports'], { cwd: folder, env })
    const [line = ''] = await started.waitForOutput(/.*webhooks are not received.*/)
    expect(line).toContain('"processes":["Export"]')
    expect(line).toContain('WEBHOOK_VERIFIER_TOKENS')
  })

  it('`integration-host start` fails with a message that names all missing settings of the provider', async () => {
    expect((await init('.')).code).toBe(0)
    const { code, stderr } = await cli(['start', '--free-ports'])
    expect(code).toBe(1)
    for (const name of ['DISCOVERY_URL', 'CLIENT_ID', 'CLIENT_SECRET'])
      expect(stderr).toContain(`${name}: is missing`)
    expect(stderr).not.toContain('CREDENTIAL_KEYS')
    // The failed start has not recorded a provider in the folder, so the folder can be used with the sandbox.
    await using started = startProcess([CLI, 'dev', '--free-ports'], { cwd: folder })
    await started.waitForOutput(/connected company {3}Rosewood Interiors/)
  })

  it('`integration-host start` still has a queued transaction after SIGKILL and a restart', async () => {
    expect((await init('.')).code).toBe(0)
    const env = { DISCOVERY_URL: 'http://127.0.0.1:1/', CLIENT_ID: 'a', CLIENT_SECRET: 'b' }
    const run = () => startProcess([CLI, 'start', '--free-ports'], { cwd: folder, env })
    const addressOf = async (started: ReturnType<typeof run>) => ({
      COORDINATOR_URL: (await started.waitForOutput(/coordinator +(http:\S+)/))[1] ?? '',
    })
    const queue = ['transactions', 'queue', 'sale-1', '--realm', REALM, '--data', SALE]
    {
      await using first = run()
      expect((await cli(queue, await addressOf(first))).code).toBe(0)
      await first.stop('SIGKILL')
    }
    await using second = run()
    const again = await cli(queue, await addressOf(second))
    expect(again.stdout).toContain('sale-1 was queued before')
    expect(second.output()).not.toContain('webhooks are not received')
    // The output is not a terminal and may be a log, so it contains no sign-in link.
    expect(second.output()).toContain('npx --no -- integration-host console sign-in')
    expect(second.output()).not.toContain('sign-in#')
    expect(await second.stop('SIGTERM')).toBe(0)
  })
})

it('`integration-host --version` prints the version of the package', async () => {
  const { version } = JSON.parse(
    await readFile(new URL('../../package.json', import.meta.url), 'utf8'),
  )
  expect(await cli(['--version'])).toEqual({ code: 0, stdout: `${version}\n`, stderr: '' })
})
