import { createHash } from 'node:crypto'
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { until } from '../packages/shared/test-support/eventually.ts'
import { type StartedProcess, startProcess } from '../packages/shared/test-support/start-process.ts'
import { acquireLock } from './install-lock.mjs'

/*
 * A minimal workspace with the real bootstrap and a fake `npm`, whose pnpm records its arguments. Like
 * pnpm, it puts a Node executable and a program into node_modules.
 */
let root: string
/** The content of the package pnpm that the fake npm downloads. */
const PACKAGE = 'the package pnpm'
const running = new Set<StartedProcess>()

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'bootstrap-test-'))
  for (const folder of ['scripts', 'app', 'tools', 'elsewhere']) mkdirSync(join(root, folder))
  for (const name of [
    'bootstrap.mjs',
    'install-lock.mjs',
    'node-version.mjs',
    'npm-parent.mjs',
    'pnpm.mjs',
  ]) {
    copyFileSync(join(import.meta.dirname, name), join(root, 'scripts', name))
  }
  needNode('>=24.21')
  write('pnpm-workspace.yaml', 'packages:\n  - app\n')
  write('pnpm-lock.yaml', 'lockfileVersion: 9.0\n')
  write('app/package.json', JSON.stringify({ name: 'app' }))
  write(
    'app/entry.mjs',
    `import { existsSync } from 'node:fs'
     const [what, value] = process.argv.slice(2)
     if (what === 'exit') process.exit(Number(value))
     if (what === 'die') process.kill(process.pid, value)
     if (what === 'wait') {
       const wait = setInterval(() => {}, 1000)
       for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
         process.on(signal, () => { console.log('got ' + signal); clearInterval(wait); process.exitCode = 7 })
       }
     }
     console.log(JSON.stringify({ started: process.argv.slice(2), flags: process.execArgv, cwd: process.cwd(), bundled: process.env.BUNDLED_NODE === 'yes' }))`,
  )
  write(
    'tools/npm',
    `#!${process.execPath}
     const fs = require('node:fs')
     if (process.argv[2] === 'pack') fs.writeFileSync('pnpm-12.21.0.tgz', ${JSON.stringify(PACKAGE)})
     else {
       fs.mkdirSync('node_modules/pnpm/bin', { recursive: true })
       fs.copyFileSync(${JSON.stringify(join(root, 'pnpm.mjs'))}, 'node_modules/pnpm/bin/pnpm.mjs')
     }`,
  )
  write(
    'pnpm.mjs',
    `import fs from 'node:fs'
     const modules = ${JSON.stringify(join(root, 'node_modules'))}
     fs.appendFileSync(${JSON.stringify(join(root, 'installs.log'))}, process.argv.slice(2).join(' ') + '\\n')
     function finish() {
       fs.mkdirSync(modules + '/node/bin', { recursive: true })
       fs.mkdirSync(modules + '/.bin', { recursive: true })
       if (!process.env.NO_NODE) {
         const script = '#!/bin/sh\\nBUNDLED_NODE=yes exec ' + process.execPath + ' "$@"\\n'
         fs.writeFileSync(modules + '/node/bin/node', script, { mode: 0o755 })
       }
       fs.writeFileSync(modules + '/.bin/tool', '#!/bin/sh\\necho "tool $* with $(command -v node)"\\n', { mode: 0o755 })
       process.exit(Number(process.env.INSTALL_EXIT ?? 0))
     }
     const poll = setInterval(() => { if (!fs.existsSync(${JSON.stringify(join(root, 'hold'))})) { clearInterval(poll); finish() } }, 10)`,
  )
  chmodSync(join(root, 'tools', 'npm'), 0o755)
  // Makes `spawn` in the bootstrap return only half a second after the installer has started.
  write(
    'slow-spawn.cjs',
    `const fs = require('node:fs')
     const processes = require('node:child_process')
     if (!process.argv[1].endsWith('bootstrap.mjs')) return
     const { spawn } = processes
     const pause = (ms) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)
     processes.spawn = (...args) => {
       const child = spawn(...args)
       while (!fs.existsSync(${JSON.stringify(join(root, 'installs.log'))})) pause(10)
       pause(500)
       return child
     }
     require('node:module').syncBuiltinESMExports()`,
  )
})

afterEach(() => {
  for (const started of running) started.signal('SIGKILL')
  running.clear()
  rmSync(root, { recursive: true, force: true })
})

describe('the installation of dependencies by the bootstrap', () => {
  it('the bootstrap installs with the pinned package manager on the first run, and installs nothing on the second run', async () => {
    const first = await bootstrap('app/entry.mjs', 'one', 'two')
    expect(first).toMatchObject({ code: 0, started: ['one', 'two'] })
    expect(first.err).toContain('First run')
    expect(first.out.trim().split('\n')).toHaveLength(1)

    const second = await bootstrap('app/entry.mjs')
    expect(second).toMatchObject({ code: 0, started: [], err: '' })
    expect(installs()).toHaveLength(1)
    expect(installs()[0]).toMatch(/^install --frozen-lockfile --prod\b(?!=)/)
  })

  it.each([
    ['the lockfile', () => write('pnpm-lock.yaml', 'lockfileVersion: 9.0\n# changed\n')],
    [
      'the settings of the workspace',
      () => write('pnpm-workspace.yaml', 'packages:\n  - app\n\nnodeVersion: 24.21.0\n'),
    ],
    [
      'the dependencies of a package',
      () => write('app/package.json', JSON.stringify({ name: 'app', dependencies: { x: '1' } })),
    ],
  ])('the bootstrap installs again when %s changed', async (_, change) => {
    await bootstrap('app/entry.mjs')
    change()
    const again = await bootstrap('app/entry.mjs')
    expect(again.err).toContain('have changed')
    expect(installs()).toHaveLength(2)
  })

  it('the bootstrap does not install again when only the scripts in a package.json have changed', async () => {
    await bootstrap('app/entry.mjs')
    write('app/package.json', JSON.stringify({ name: 'app', scripts: { x: 'y' } }))
    await bootstrap('app/entry.mjs')
    expect(installs()).toHaveLength(1)
  })

  it('the bootstrap installs again if a package with dependencies has no node_modules', async () => {
    write('app/package.json', JSON.stringify({ name: 'app', dependencies: { x: '1' } }))
    mkdirSync(join(root, 'app/node_modules'))
    await bootstrap('app/entry.mjs')
    await bootstrap('app/entry.mjs')
    expect(installs()).toHaveLength(1)
    rmSync(join(root, 'app/node_modules'), { recursive: true })
    await bootstrap('app/entry.mjs')
    expect(installs()).toHaveLength(2)
  })

  it('the bootstrap adds the development dependencies with --dev, and keeps them when it later runs without --dev', async () => {
    await bootstrap('app/entry.mjs')
    await bootstrap('--dev', 'app/entry.mjs')
    await bootstrap('app/entry.mjs')
    await bootstrap('--dev', 'app/entry.mjs')
    expect(installs()).toHaveLength(2)
    expect(installs()[1]).toContain('--prod=false')

    write('pnpm-lock.yaml', 'lockfileVersion: 9.0\n# changed\n')
    await bootstrap('app/entry.mjs')
    expect(installs()[2]).toContain('--prod=false')
  })

  it('the bootstrap reports a failed installation without starting the program, and installs on the next run', async () => {
    const failed = await bootstrapWith({ INSTALL_EXIT: '9' }, 'app/entry.mjs')
    expect(failed).toMatchObject({ code: 1, started: undefined })
    expect(failed.err).toContain('nothing was started')

    expect(await bootstrap('app/entry.mjs')).toMatchObject({ code: 0, started: [] })
    expect(installs()).toHaveLength(2)
  })

  it('the bootstrap runs nothing of a pnpm that does not have the hash in packageManager', async () => {
    needNode('>=24.21', '0'.repeat(128))
    const other = await bootstrap('app/entry.mjs')
    expect(other).toMatchObject({ code: 1, started: undefined })
    expect(other.err).toContain('does not have the hash that "packageManager"')
    expect(installs()).toEqual([])
    needNode('>=24.21', '')
    expect((await bootstrap('app/entry.mjs')).err).toContain('must be pnpm@<version>+sha512.<hash>')

    needNode('>=24.21')
    expect(await bootstrap('app/entry.mjs')).toMatchObject({ code: 0, started: [] })
  })

  it('the bootstrap reports that npm is missing if npm is not on the PATH', async () => {
    const result = await bootstrapWith({ PATH: join(root, 'elsewhere') }, 'app/entry.mjs')
    expect(result).toMatchObject({ code: 1, started: undefined })
    expect(result.err).toContain('npm is needed to install')
  })

  it.each([
    ['while the installer runs', () => ({})],
    // On a busy machine the installer may already run before the call of `spawn` in the bootstrap returns.
    [
      'before spawn has returned',
      () => ({ NODE_OPTIONS: `--require=${join(root, 'slow-spawn.cjs')}` }),
    ],
  ])(
    'the bootstrap stops the installer on SIGTERM %s, starts nothing, and leaves no lock behind',
    async (_, env) => {
      write('hold', '')
      const installing = start(env(), 'app/entry.mjs')
      await until(() => installs().length === 1)
      installing.signal('SIGTERM')
      expect(await installing.result).toMatchObject({ code: 143, started: undefined })

      rmSync(join(root, 'hold'))
      const next = await bootstrap('app/entry.mjs')
      expect(next).toMatchObject({ code: 0, started: [] })
      expect(next.err).not.toContain('Another terminal')
    },
  )
})

describe('concurrent runs of the bootstrap', () => {
  it('two concurrent runs of the bootstrap install the dependencies once, and both start their program', async () => {
    write('hold', '')
    const first = start({}, 'app/entry.mjs', 'first')
    await until(() => installs().length === 1)
    const second = start({}, 'app/entry.mjs', 'second')
    await second.waitForOutput(/Another terminal/)
    rmSync(join(root, 'hold'))
    expect(await first.result).toMatchObject({ code: 0, started: ['first'] })
    expect(await second.result).toMatchObject({ code: 0, started: ['second'] })
    expect(installs()).toHaveLength(1)
  })

  it('the install lock of a killed bootstrap does not block the next run', async () => {
    write('hold', '')
    const killed = start({}, 'app/entry.mjs')
    await until(() => installs().length === 1)
    const waiting = ['a', 'b', 'c'].map((name) => start({}, 'app/entry.mjs', name))
    await Promise.all(waiting.map((one) => one.waitForOutput(/Another terminal/)))

    killed.signal('SIGKILL')
    await until(() => installs().length === 2)
    rmSync(join(root, 'hold'))
    const results = await Promise.all(waiting.map((one) => one.result))
    expect(results.map((one) => one.started)).toEqual([['a'], ['b'], ['c']])
    expect(installs()).toHaveLength(2)
  })

  it('a bootstrap that waits too long for the install lock reports which process holds the lock', async () => {
    const lock = join(root, 'lock')
    const onWait = (): void => {}
    const release = await acquireLock(lock, { onWait, waitMs: 0 })
    await expect(acquireLock(lock, { onWait, waitMs: 0 })).rejects.toThrow(
      `process ${process.pid} still holds the lock`,
    )
    release()
    await expect(acquireLock(lock, { onWait, waitMs: 0 })).resolves.toBeTypeOf('function')
  })
})

describe('the bootstrap while its program runs', () => {
  it('the bootstrap exits with the exit code of the program that it started', async () => {
    expect(await bootstrap('app/entry.mjs', 'exit', '42')).toMatchObject({ code: 42 })
  })

  it('the bootstrap exits with 128 plus the signal number if a signal ended the program', async () => {
    expect(await bootstrap('app/entry.mjs', 'die', 'SIGKILL')).toMatchObject({ code: 137 })
  })

  it.each(['SIGINT', 'SIGTERM', 'SIGHUP'] as const)(
    'the bootstrap forwards %s and waits for the program to exit',
    async (signal) => {
      const waiting = start({}, 'app/entry.mjs', 'wait')
      await waiting.waitForOutput(/started/)
      waiting.signal(signal)
      const { code, out } = await waiting.result
      expect(out.match(/got \w+/g)).toEqual([`got ${signal}`])
      expect(code).toBe(7)
    },
  )

  it('the bootstrap stops its program if npm, which started the bootstrap, exits without forwarding SIGTERM', async () => {
    await bootstrap('app/entry.mjs')
    const command = `"${process.execPath}" scripts/bootstrap.mjs app/entry.mjs wait; true`
    const shell = track(
      startProcess(['-c', command], {
        program: 'sh',
        cwd: root,
        env: { ...process.env, npm_lifecycle_event: 'start' },
      }),
    )
    await shell.waitForOutput(/started/)
    shell.signal('SIGKILL')
    await expect(shell.waitForOutput(/got SIGTERM/)).resolves.toBeTruthy()
  })

  it('the bootstrap runs the program with the SIGUSR1 inspector disabled', async () => {
    expect((await bootstrap('app/entry.mjs')).out).toContain('"flags":["--disable-sigusr1"]')
  })

  it('the bootstrap runs the program in the root of the repository from any working directory', async () => {
    const result = await bootstrap('app/entry.mjs')
    expect(result.cwd).toBe(root)
  })

  it('the bootstrap uses the Node executable in node_modules if the running Node is too old', async () => {
    needNode('>=999.0')
    expect(await bootstrap('app/entry.mjs')).toMatchObject({ started: [], bundled: true })
    needNode('>=24.21')
    expect(await bootstrap('app/entry.mjs')).toMatchObject({ started: [], bundled: false })
  })

  it('the bootstrap installs again if the running Node is too old and node_modules has no Node executable', async () => {
    needNode('>=999.0')
    await bootstrap('app/entry.mjs')
    rmSync(join(root, 'node_modules/node'), { recursive: true })
    expect(await bootstrap('app/entry.mjs')).toMatchObject({ started: [], bundled: true })
    expect(installs()).toHaveLength(2)
  })

  it('the bootstrap reports that Node is too old if no newer Node could be installed, and installs again on the next run', async () => {
    needNode('>=999.0')
    const result = await bootstrapWith({ NO_NODE: '1' }, 'app/entry.mjs')
    expect(result).toMatchObject({ code: 1, started: undefined })
    expect(result.err.trim().split('\n').at(-1)).toMatch(
      /^Node 999\.0 or newer is needed.*nodejs\.org/,
    )

    expect(await bootstrap('app/entry.mjs')).toMatchObject({ code: 0, started: [] })
  })

  it('the PATH of a started program begins with the folder of the installed Node executable', async () => {
    needNode('>=999.0')
    const result = await bootstrap('--bin', 'tool', 'run', '--fast')
    expect(result.out).toBe(`tool run --fast with ${join(root, 'node_modules/node/bin/node')}\n`)
  })

  it('the bootstrap reports an unknown program by its name, and prints its usage if the arguments name no program', async () => {
    const unknown = await bootstrap('--bin', 'nonesuch')
    expect(unknown).toMatchObject({ code: 1 })
    expect(unknown.err).toContain('nonesuch')
    const empty = await bootstrap('--dev')
    expect(empty).toMatchObject({ code: 1 })
    expect(empty.err).toContain('usage')
  })
})

interface Result {
  readonly code: number | null
  readonly out: string
  readonly err: string
  /** What the started program has printed about itself; undefined if no program was started. */
  readonly started: readonly string[] | undefined
  readonly cwd: string | undefined
  readonly bundled: boolean | undefined
}

function start(env: NodeJS.ProcessEnv, ...args: string[]) {
  const path = [join(root, 'tools'), process.env['PATH']].join(delimiter)
  const started = track(
    startProcess([join(root, 'scripts/bootstrap.mjs'), ...args], {
      cwd: join(root, 'elsewhere'),
      // npm sets this environment variable when it runs a script.
      env: { ...process.env, npm_lifecycle_event: 'start', PATH: path, ...env },
    }),
  )
  const result = started.ended.then(({ code, stdout, stderr }): Result => {
    const report = /^\{.*\}$/m.exec(stdout)?.[0]
    const { started: reported, cwd, bundled } = JSON.parse(report ?? '{}')
    return { code, out: stdout, err: stderr, started: reported, cwd, bundled }
  })
  return { ...started, result }
}

function track(started: StartedProcess): StartedProcess {
  running.add(started)
  return started
}

function bootstrapWith(env: NodeJS.ProcessEnv, ...args: string[]): Promise<Result> {
  return start(env, ...args).result
}

function bootstrap(...args: string[]): Promise<Result> {
  return bootstrapWith({}, ...args)
}

function installs(): string[] {
  const log = join(root, 'installs.log')
  return existsSync(log) ? readFileSync(log, 'utf8').trim().split('\n') : []
}

function write(path: string, content: string): void {
  writeFileSync(join(root, path), content)
}

function needNode(
  range: string,
  digest = createHash('sha512').update(PACKAGE).digest('hex'),
): void {
  const manifest = {
    name: 'root',
    packageManager: `pnpm@12.21.0+sha512.${digest}`,
    engines: { node: range },
  }
  write('package.json', JSON.stringify(manifest))
}
