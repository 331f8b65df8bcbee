/**
 * Builds the package with `npm run pack`, installs it with npm in a folder outside of the checkout, as a user does, and
 * runs it there. npm gets the dependencies from the package registry. If no registry can be reached, these tests are
 * skipped and report the reason.
 */
import { mkdtemp, readdir, readFile, realpath, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import {
  type ProcessOptions,
  startProcess,
} from '@integration-host/shared/test-support/start-process'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  INSTALL_OPTIONS,
  npmEnv as env,
  runWithNpm,
  whyUnreachable,
} from '../support/processes/npm.ts'

const root = join(import.meta.dirname, '../..')
const REALM = '4620816365291'

let folder: string
let project: string
let unreachable: string | null = null
const run = (program: string, args: readonly string[], options: ProcessOptions = {}) =>
  runWithNpm(program, args, { cwd: project, ...options })
const npx = (...args: string[]) =>
  run('npx', ['--no', '--loglevel=error', '--', 'integration-host', ...args])

beforeAll(async () => {
  folder = await realpath(await mkdtemp(join(tmpdir(), 'integration-host-package-')))
  project = join(folder, 'app')
  unreachable = await whyUnreachable(folder)
  if (unreachable !== null) {
    console.warn(`SKIPPED: the tests of the installed package, because ${unreachable}`)
    return
  }
  const packed = await run(process.execPath, [join(root, 'scripts/pack.ts')], { cwd: root })
  expect(packed).toMatchObject({ code: 0 })
  const made = await run(process.execPath, [join(root, 'host/src/cli.ts'), 'init', project], {
    cwd: folder,
  })
  expect(made).toMatchObject({ code: 0 })
  expect(await run('npm', ['install', ...INSTALL_OPTIONS])).toMatchObject({ code: 0 })
}, 300_000)
afterAll(() => rm(folder, { recursive: true, force: true }))

const importsOf = (text: string): string[] =>
  [...text.matchAll(/\b(?:from|import)\s*\(?\s*["']([^"']+)["']/g)].map(([, path]) => path ?? '')

/** Returns this module, and every module that it imports by a relative path. */
async function modulesFrom(first: string): Promise<ReadonlySet<string>> {
  const found = new Set([first])
  for (const module of found)
    for (const path of importsOf(await readFile(module, 'utf8')))
      if (path.startsWith('.')) found.add(resolve(dirname(module), path))
  return found
}

describe('the installed package', () => {
  const installed = (path = '') => join(project, 'node_modules/integration-host', path)

  it('the command line of the package creates the same project as the command line of the checkout', async ({
    skip,
  }) => {
    if (unreachable !== null) skip(unreachable)
    const { version } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'))
    expect(await npx('--version')).toMatchObject({ code: 0, stdout: `${version}\n` })
    const second = join(folder, 'second')
    expect(await npx('init', second)).toMatchObject({ code: 0 })
    const names = await readdir(second, { recursive: true, withFileTypes: true })
    for (const { parentPath, name } of names.filter((entry) => entry.isFile())) {
      const file = join(parentPath, name)
      const made = await readFile(join(project, file.slice(second.length)), 'utf8')
      expect(await readFile(file, 'utf8')).toBe(made.replace('"app"', '"second"'))
    }
  })

  it('the package contains compiled modules, but no tests, no source maps and no path of the build machine', async ({
    skip,
  }) => {
    if (unreachable !== null) skip(unreachable)
    const entries = await readdir(installed(), { recursive: true, withFileTypes: true })
    const files = entries
      .filter((entry) => entry.isFile())
      .map(({ parentPath, name }) => join(parentPath, name).slice(installed().length + 1))
    const own = files.filter((file) => !file.startsWith('node_modules/'))
    expect(
      own
        .filter(
          (file) =>
            /(?:\.test\.|\.contract\.|test-support|\.map$|\.tsx?$)/.test(file) &&
            !file.endsWith('.d.ts'),
        )
        .toSorted(),
    ).toEqual(['host/template/processes/invoice.test.ts', 'host/template/processes/invoice.ts'])
    for (const file of own.filter((one) => /\.(?:js|d\.ts|json)$/.test(one))) {
      const text = await readFile(installed(file), 'utf8')
      expect(text.includes(root), file).toBe(false)
      expect(/(?:from|import\()\s*["']@integration-host\//.test(text), file).toBe(false)
    }
  })

  it('the package contains the patched Postgres driver of the checkout', async ({ skip }) => {
    if (unreachable !== null) skip(unreachable)
    const patched = join(root, 'services/coordinator/node_modules/postgres/src')
    for (const file of await readdir(patched))
      expect(await readFile(installed(`node_modules/postgres/src/${file}`), 'utf8'), file).toBe(
        await readFile(join(patched, file), 'utf8'),
      )
    const connection = await readFile(installed('node_modules/postgres/src/connection.js'), 'utf8')
    expect(connection).toContain('answer_timeout')
  })

  it('the package contains the bundle of the API reference page, and npm installs no dependency of this bundle', async ({
    skip,
  }) => {
    if (unreachable !== null) skip(unreachable)
    const own = installed('node_modules/@scalar')
    expect(await readdir(own)).toEqual(['api-reference'])
    expect(await readdir(join(own, 'api-reference/dist/browser'))).toEqual(['standalone.js.gz'])
  })

  it('npm installs nothing that only the pages of the console, the API reference page or the migrations of the checkout need', async ({
    skip,
  }) => {
    if (unreachable !== null) skip(unreachable)
    const names = await readdir(join(project, 'node_modules'))
    for (const name of [
      'react',
      'react-dom',
      '@tanstack',
      'esbuild',
      '@scalar',
      'vue',
      'drizzle-orm',
    ])
      expect(names).not.toContain(name)
  })

  it('every module of the package can be loaded, except tracing, which needs OpenTelemetry', async ({
    skip,
  }) => {
    if (unreachable !== null) skip(unreachable)
    const script = `
      import { globSync } from 'node:fs'
      const failed = []
      for (const file of globSync('{services,packages,host}/**/*.js', { cwd: ${JSON.stringify(installed())} })) {
        if (/(?:\\/main|\\/cli|\\.worker)\\.js$|^services\\/console\\/dist\\//.test(file)) continue
        await import(${JSON.stringify(installed('/'))} + file).catch((error) => failed.push(file + ' ' + error.code))
      }
      console.log(JSON.stringify(failed))`
    const { stdout, stderr } = await run(process.execPath, ['--input-type=module', '-e', script])
    expect(stderr).toBe('')
    expect(JSON.parse(stdout)).toEqual([
      'packages/shared/src/observability/opentelemetry/tracing.js ERR_MODULE_NOT_FOUND',
    ])
  })

  it('if the packages that tracing needs are not installed, a service of the package fails with an error that names them', async ({
    skip,
  }) => {
    if (unreachable !== null) skip(unreachable)
    const main = installed('services/demo-api/src/main.js')
    const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:1' }
    expect(await run(process.execPath, [main], { env: endpoint })).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(
        'install the peerDependencies of the package integration-host',
      ),
    })
  })

  it('tsc accepts the process of a new project, and rejects a process that reads data of the wrong type', async ({
    skip,
  }) => {
    if (unreachable !== null) skip(unreachable)
    const wrong = `
      import { defineProcess, z } from 'integration-host'
      export default defineProcess('Wrong', { input: z.object({ amount: z.number() }) })
        .step('one', (step) => step.complete({ half: step.initialData.amount / 2 }))
        .step('two', (step) => step.complete(step.previous.data.half.toFixed()))
        // @ts-expect-error the data of step "one" has no member "double"
        .step('three', (step) => step.complete(step.item('one').data.double))\n`
    await writeFile(join(project, 'processes/wrong.ts'), wrong)
    expect(await run('npm', ['run', '--silent', 'check'])).toMatchObject({ code: 0, stdout: '' })
    await writeFile(join(project, 'processes/wrong.ts'), wrong.replace('@ts-expect-error', ''))
    const { code, stdout } = await run('npm', ['run', '--silent', 'check'])
    expect([code, stdout]).toEqual([expect.any(Number), expect.stringContaining('wrong.ts')])
    expect(code).not.toBe(0)
    await rm(join(project, 'processes/wrong.ts'))
  })

  it('`npm test` of a new project runs its process with integration-host/testing of the package', async ({
    skip,
  }) => {
    if (unreachable !== null) skip(unreachable)
    const tested = await run('npm', ['test', '--silent'])
    expect(tested).toMatchObject({ code: 0, stdout: expect.stringMatching(/^\S+ pass 3$/m) })
  })

  it('`integration-host dev` of the package completes a run of the process of a new project', async ({
    skip,
  }) => {
    if (unreachable !== null) skip(unreachable)
    const program = join(project, 'node_modules/.bin/integration-host')
    await using started = startProcess(['dev', '--free-ports'], { program, cwd: project, env })
    const [, address = ''] = await started.waitForOutput(/COORDINATOR_URL=(\S+)/)
    const data = '{"customer": "Ada", "amount": 66}'
    const queued = await run(
      program,
      ['transactions', 'queue', 'sale-1', '--realm', REALM, '--data', data],
      { env: { COORDINATOR_URL: address } },
    )
    expect(queued).toMatchObject({ code: 0, stderr: '' })
    await started.waitForOutput(/Invoice sale-1 {2}Completed/)
    expect(await (await fetch(`${address}/docs`)).text()).toContain('src="/docs/reference.js?v=')
    const script = await fetch(`${address}/docs/reference.js`, {
      headers: { 'Accept-Encoding': 'identity' },
    })
    expect(await script.text()).toContain('createApiReference')
    const [, page = ''] = await started.waitForOutput(/^ *console +(\S+)$/m)
    const [, path = ''] =
      /<script type="module" src="([^"]+)"/.exec(await (await fetch(page)).text()) ?? []
    expect(await fetch(new URL(path, page))).toMatchObject({ status: 200 })
    expect(await started.stop('SIGTERM')).toBe(0)
  })

  it('the client of the package (integration-host/client) needs no other package, queues a run and waits for its end', async ({
    skip,
  }) => {
    if (unreachable !== null) skip(unreachable)
    for (const module of await modulesFrom(installed('packages/client/src/client.js'))) {
      const text = await readFile(module, 'utf8')
      expect(
        importsOf(text).filter((path) => !path.startsWith('.')),
        module,
      ).toEqual([])
    }
    const client = `
      import { createClient, hasProblem, type Run } from 'integration-host/client'
      const [coordinator = '', key = ''] = process.argv.slice(2)
      const sales = createClient({ coordinator, key }).process<{ customer: string; amount: number }>('Invoice')
      const options = { realm: '${REALM}', tags: { channel: 'shop' } }
      const queued: Run = await sales.queue('client-1', { customer: 'Ada', amount: 66 }, options)
      // @ts-expect-error "Unknown" is not a status of a run
      if (queued.Status === 'Unknown') throw new Error('unknown')
      const run = await sales.run('client-1').completed({ signal: AbortSignal.timeout(60_000) })
      const error: unknown = await sales.run('gone').get().catch((reason: unknown) => reason)
      console.log(run.Status, run.Tags, hasProblem(error, 'transaction_not_found') && error.problem.status)\n`
    await writeFile(join(project, 'client.ts'), client)
    await writeFile(
      join(project, 'tsconfig.client.json'),
      JSON.stringify({ extends: './tsconfig.json', include: ['client.ts'] }),
    )
    const checked = await run('npx', ['--no', '--', 'tsc', '--project', 'tsconfig.client.json'])
    expect(checked).toMatchObject({ code: 0, stdout: '' })
    const program = join(project, 'node_modules/.bin/integration-host')
    const key = 'package-test-key-0123456789-0123456789'
    await using started = startProcess(['dev', '--free-ports'], {
      program,
      cwd: project,
      env: { ...env, SERVICE_API_KEY: key },
    })
    const [, address = ''] = await started.waitForOutput(/COORDINATOR_URL=(\S+)/)
    expect(await run(process.execPath, ['client.ts', address, key])).toMatchObject({
      code: 0,
      stdout: "Completed { channel: 'shop' } 404\n",
      stderr: '',
    })
    expect(await started.stop('SIGTERM')).toBe(0)
  })

  it('`integration-host dev` stops if SIGTERM ends the npx process that started it', async ({
    skip,
  }) => {
    if (unreachable !== null) skip(unreachable)
    const args = ['--no', '--loglevel=error', '--', 'integration-host', 'dev', '--free-ports']
    await using npm = startProcess(args, { program: 'npx', cwd: project, env })
    const [, address = ''] = await npm.waitForOutput(/token-service +(\S+)/)
    npm.signal('SIGTERM')
    // The host has inherited the output of npx, so this output ends only when the host has ended too.
    await npm.ended
    await expect(fetch(address)).rejects.toThrow('fetch failed')
  })

  it('the compose file of a new project mounts its processes into the coordinator', async ({
    skip,
  }) => {
    if (unreachable !== null) skip(unreachable)
    const version = await run('docker', ['compose', 'version']).catch(() => null)
    if (version?.code !== 0) skip('docker compose is not installed')
    const compose = await run('docker', ['compose', 'config', '--format', 'json'])
    expect(compose).toMatchObject({ code: 0 })
    const { services } = JSON.parse(compose.stdout)
    // The package has no Dockerfile, so Compose must not try to build an image.
    expect(services.init.build).toBeUndefined()
    expect(services.coordinator).toMatchObject({
      image: 'integration-host:integration-host',
      environment: { PROCESSES: '/processes', AMQP_URL_FILE: '/secrets/amqp_url' },
      volumes: expect.arrayContaining([
        expect.objectContaining({
          source: join(project, 'processes'),
          target: '/processes',
          read_only: true,
        }),
      ]),
    })
  })
})
