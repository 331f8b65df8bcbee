/**
 * Tests invalid requests, misbehaving targets and steps, and full disks. Each transaction must end in a documented
 * status, and the next transaction must still run.
 */
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmdirSync } from 'node:fs'
import { mkdir, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { until } from '@integration-host/shared/test-support/eventually'
import { describe, expect, it } from 'vitest'
import { type Fixture, type FixtureOptions, onBackends } from '../test-support/fixture.ts'
import { respondWith } from '../test-support/fake-target.ts'
import { processOf } from '../test-support/process-of.ts'
import type { Step } from './step/step.ts'

let host: Fixture | undefined
const opened = onBackends('embedded')
const start = async (options: FixtureOptions = {}): Promise<Fixture> =>
  (host = await opened.start(options))

/** Returns the address of the target of the fixture. It is known when a step runs. */
const targetUrl = (): string => host?.target.url ?? ''

/**
 * A process with a single step, which runs the handler that the initial data names. The handler `good` completes
 * normally.
 */
const tried = (
  handlers: Readonly<Record<string, (step: Step<string>) => unknown>>,
  stepTimeoutSeconds = 3,
  maxAttempts = 1,
) =>
  processOf('Tried', {
    stepTimeoutSeconds,
    retry: { maxAttempts },
    steps: {
      only: (step: Step<string>) => (handlers[step.initialData] ?? (() => step.complete()))(step),
    },
  })

async function expectHealthy(fixture: Fixture): Promise<void> {
  const id = crypto.randomUUID()
  await fixture.queue(id, 'good')
  await fixture.reached(id, 'Completed')
}

describe('a misbehaving step', () => {
  const circular: { self?: unknown } = {}
  circular.self = circular
  const never = new Promise<never>(() => {})
  it.each<[string, (step: Step<string>) => unknown, string]>([
    ['returns a rejected promise', () => Promise.reject(new Error('a bug')), 'step_threw'],
    [
      'throws synchronously',
      () => {
        throw new TypeError('a bug')
      },
      'step_threw',
    ],
    [
      'rejects with an error message of a megabyte',
      () => Promise.reject(new Error('x\0'.repeat(500_000))),
      'step_threw',
    ],
    ['returns without a call and without a status', () => {}, 'status_not_set'],
    ['returns a string instead of setting its status', () => 'Completed', 'status_not_set'],
    ['returns a promise that never settles', () => never, 'step_timeout'],
    [
      'calls a target that never responds',
      (step) => step.execute({ url: `${targetUrl()}/held` }),
      'step_timeout',
    ],
    ['completes with circular data', (step) => step.complete(circular as never), 'step_threw'],
    ['completes with a bigint', (step) => step.complete(1n as never), 'step_threw'],
    ['calls an invalid URL', (step) => step.execute({ url: 'nowhere' }), 'step_threw'],
    ['calls a file: URL', (step) => step.execute({ url: 'file:///etc/passwd' }), 'step_threw'],
    [
      'sends an invalid header name',
      (step) => step.execute({ url: targetUrl(), headers: { 'a\nb': 'c' } }),
      'step_threw',
    ],
    [
      'calls with an invalid HTTP method',
      (step) => step.execute({ url: targetUrl(), method: 'GET /' }),
      'step_threw',
    ],
    ['reads the item of an unknown step', (step) => step.item('nowhere'), 'step_threw'],
  ])(
    'a step that %s fails with an error class and an error text, and the next transaction completes',
    async (_, handler, errorClass) => {
      const fixture = await start({ processes: [tried({ bad: handler })] })
      fixture.target.on('/held', () => {})
      await fixture.queue('1', 'bad')
      const run = await fixture.reached('1', 'Failed')
      expect(run.ErrorClass).toBe(errorClass)
      expect(run.LastError).toMatch(/^[^\0]{3,1000}$/)
      await expectHealthy(fixture)
    },
  )

  it('a step that blocks the event loop for longer than its lease sends the same idempotency key in every attempt', async () => {
    let times = 0
    const block = (step: Step<string>) => {
      times += 1
      if (times === 1) for (const end = performance.now() + 2_000; performance.now() < end;);
      return step.execute({ url: `${targetUrl()}/order` })
    }
    const fixture = await start({
      // On a busy machine, the attempt may take much longer than the block, and later attempts may lose their lease too.
      processes: [tried({ block }, 60, 10)],
      times: { leaseMs: 1_000, sweepMs: 100 },
      timing: { renewMs: 200 },
    })
    await fixture.queue('1', 'block')
    expect((await fixture.reached('1', 'Completed')).Items).toMatchObject([{ Status: 'Completed' }])
    const keys = fixture.target.calls.map(({ headers }) => headers['idempotency-key'])
    expect(new Set(keys)).toEqual(new Set(['Tried/1/0/only']))
    await expectHealthy(fixture)
  })
})

describe('an unusual response of a target', () => {
  const parse = (step: Step<string>) =>
    step.execute(
      { url: `${targetUrl()}/bad` },
      { parse: (body) => (body as { name: string }).name.toUpperCase() },
    )
  const bytes =
    (type: string, body: Buffer) =>
    (_: IncomingMessage, response: ServerResponse): void => {
      response.writeHead(200, { 'content-type': type })
      response.end(body)
    }
  const latin1 = Buffer.from('{"name":"Müller"}', 'latin1')

  it.each<[string, Parameters<Fixture['target']['on']>[1], object]>([
    [
      'status 200 and a body of 50 MB',
      respondWith(200, 'x'.repeat(52_428_800)),
      { ErrorClass: 'response_too_large' },
    ],
    [
      'status 404 and a body of 50 MB',
      respondWith(404, 'x'.repeat(52_428_800)),
      { ErrorClass: 'http_404' },
    ],
    [
      'truncated JSON',
      respondWith(200, '{"name":', { 'content-type': 'application/json' }),
      { ErrorClass: 'response_invalid' },
    ],
    ['an empty body', respondWith(200), { ErrorClass: 'response_invalid' }],
    ['JSON of another shape', respondWith(200, '[]'), { ErrorClass: 'response_invalid' }],
    ['a redirect', respondWith(302, '', { location: '/order' }), { ErrorClass: 'http_302' }],
  ])(
    'a response with %s fails the step with the expected error class',
    async (_, reply, expected) => {
      const fixture = await start({ processes: [tried({ bad: parse })] })
      fixture.target.on('/bad', reply)
      await fixture.queue('1', 'bad')
      expect(await fixture.reached('1', 'Failed')).toMatchObject(expected)
      await expectHealthy(fixture)
    },
  )

  it.each([
    [
      'ISO-8859-1 with ISO-8859-1 in its Content-Type',
      'application/json; charset=ISO-8859-1',
      latin1,
      'MÜLLER',
    ],
    [
      'ISO-8859-1 with UTF-8 in its Content-Type',
      'application/json; charset=utf-8',
      latin1,
      'M\uFFFDLLER',
    ],
    ['an unknown charset', 'application/json; charset=klingon', latin1, 'M\uFFFDLLER'],
    [
      'UTF-8 without a named charset',
      'application/json',
      Buffer.from('{"name":"Müller"}'),
      'MÜLLER',
    ],
    [
      'JSON with an escaped NUL',
      'application/json',
      Buffer.from('{"name":"a\\u0000b"}'),
      'A\uFFFDB',
    ],
  ])('a response body in %s is decoded to well-formed text', async (_, type, body, data) => {
    const fixture = await start({ processes: [tried({ bad: parse })] })
    fixture.target.on('/bad', bytes(type, body))
    await fixture.queue('1', 'bad')
    expect((await fixture.reached('1', 'Completed')).Items).toMatchObject([{ Data: data }])
  })
})

describe('the limits of a transaction', () => {
  it.each([
    '../../etc/x',
    '/etc/x',
    '=cmd()',
    'a/b\\c',
    '...',
    '😀',
    '%00',
    'CON',
    'x'.repeat(128),
    '漢'.repeat(128),
    '😀'.repeat(128),
  ])(
    'an order with the id %j writes exactly one file, and writes it inside OrderCSV/',
    async (id) => {
      const fixture = await start()
      expect((await fixture.queue(id, '=1+1')).status).toBe(202)
      await fixture.reached(id, 'Completed')
      const files = await readdir(opened.backends().dataDir, { recursive: true })
      const written = files.filter((file) => !file.startsWith('ITSource') && file !== 'OrderCSV')
      expect(written).toEqual([expect.stringMatching(/^OrderCSV\/Order_[\w.%-]{1,240}\.0\.csv$/)])
    },
  )

  it.each([
    ['with Content-Length', (text: string) => text],
    ['in chunks', (text: string) => new Blob([text]).stream()],
  ])(
    'the coordinator accepts a transaction of exactly 256 KB that is sent %s, and rejects a larger transaction with 413',
    async (_how, bodyOf) => {
      const fixture = await start({ processes: [tried({})] })
      const send = (length: number) => {
        const frame = '{"TransactionID":"1","InitialData":""}'
        return fixture.call('/processes/Tried/transactions', {
          method: 'POST',
          headers: { 'Content-Type': 'application/json' },
          body: bodyOf(frame.replace('""', `"${'x'.repeat(length - frame.length)}"`)),
          duplex: 'half',
        })
      }
      expect((await send(262_145)).status).toBe(413)
      expect((await send(262_144)).status).toBe(202)
      await fixture.reached('1', 'Completed')
    },
  )
})

describe('an OrderCSV folder that cannot be written', () => {
  const folder = () => join(opened.backends().dataDir, 'OrderCSV')
  const recreate = async (): Promise<void> => {
    await rm(folder())
    await mkdir(folder())
  }
  /**
   * Makes the folder unwritable and expects that the order is retried. Then makes the folder writable again and expects
   * that the order completes.
   */
  async function expectRetryUntilRepaired(
    code: RegExp,
    damage: () => Promise<void>,
    repair: () => Promise<void>,
  ): Promise<void> {
    const fixture = await start()
    await damage()
    await fixture.queue('66')
    const retrying = await fixture.reached('66', 'Retrying')
    expect(retrying).toMatchObject({ StepName: 'csv', ErrorClass: 'step_threw' })
    expect(retrying.LastError).toMatch(code)
    await repair()
    await fixture.reached('66', 'Completed')
    expect(await readdir(folder())).toEqual(['Order_66.0.csv'])
    expect(await readFile(join(folder(), 'Order_66.0.csv'), 'utf8')).toMatch(/Confirmed\n$/)
    expect(fixture.target.calls).toHaveLength(2)
  }

  it('an order completes after the folder OrderCSV was removed, because its csv step creates the folder again', async () => {
    const fixture = await start()
    await rm(folder(), { recursive: true, force: true })
    await fixture.queue('66')
    await fixture.reached('66', 'Completed')
    expect(await readdir(folder())).toEqual(['Order_66.0.csv'])
  })

  it('an order is retried while a file named OrderCSV prevents the creation of the folder', async () => {
    await expectRetryUntilRepaired(/EEXIST|ENOTDIR/, () => writeFile(folder(), ''), recreate)
  })

  // The folder is a link to /sys, because the test may run as root, and even root cannot create files in /sys.
  it.skipIf(process.platform !== 'linux')(
    'an order is retried while the folder OrderCSV is read-only',
    async () => {
      await expectRetryUntilRepaired(
        /EACCES|EROFS|EPERM/,
        () => symlink('/sys', folder()),
        recreate,
      )
    },
  )

  // The test needs a small file system that can become full. Only a privileged process can mount one.
  it.skipIf(!canMount())(
    'an order is retried while the disk is full, and the next attempt removes the temporary files of a killed worker',
    async () => {
      await mkdir(folder())
      command('mount', ['-t', 'tmpfs', '-o', 'size=16k', 'none', folder()])
      try {
        const filler = join(folder(), 'filler')
        await expectRetryUntilRepaired(
          /ENOSPC/,
          async () => {
            await writeFile(join(folder(), 'Order_66.0.csv.0123abcd.tmp'), 'half a fi')
            await writeFile(filler, Buffer.alloc(16_384)).catch(() => {})
          },
          () => rm(filler),
        )
      } finally {
        await host?.[Symbol.asyncDispose]()
        command('umount', [folder()])
      }
    },
  )
})

/** Runs a program. @throws {Error} with the program's standard error if its exit code is not 0. */
function command(program: string, args: readonly string[]): void {
  const { status, stderr } = spawnSync(program, args, { encoding: 'utf8' })
  if (status !== 0) throw new Error(`${program} failed: ${stderr}`)
}

function canMount(): boolean {
  const place = mkdtempSync(join(tmpdir(), 'mount-'))
  try {
    command('mount', ['-t', 'tmpfs', '-o', 'size=16k', 'none', place])
    command('umount', [place])
    return true
  } catch {
    return false
  } finally {
    rmdirSync(place)
  }
}

describe('changing a process that has active runs', () => {
  const act = (fixture: Fixture, action: string) =>
    fixture.call(`/processes/Changed/transactions/1/${action}`, { method: 'POST' })
  const changed = (steps: Record<string, (step: Step) => unknown>, version?: number) => [
    processOf('Changed', {
      retry: { baseMs: 1 },
      steps,
      ...(version !== undefined && { version }),
    }),
  ]
  const one = (step: Step) => step.complete()
  const version = (step: Step) => step.complete(step.version)

  it('a run fails with step_unknown if its step was removed from the process, and can be resumed after the step was added again', async () => {
    await using source = await opened.backends().openSource({ sweepMs: 50 })
    await using bus = await opened.backends().openBus()
    const twoSteps = changed({ one, two: () => Promise.reject(new Error('not yet')) }, 1)
    const before = await start({ source, bus, processes: twoSteps })
    await before.queue('1')
    await until(async () => (await before.run('1')).StepName === 'two')
    await before[Symbol.asyncDispose]()

    const without = await start({ source, bus, processes: changed({ one }, 2) })
    expect(await without.reached('1', 'Failed')).toMatchObject({
      StepName: 'two',
      ErrorClass: 'step_unknown',
      DefinitionVersion: '1',
      LastError:
        'the process has no step two (the run began with version 1, the process now has version 2): add a step of ' +
        'this name and resume the run, or replay it, which starts a run with the steps that the process has now',
    })
    expect((await act(without, 'resume')).status).toBe(202)
    await without.reached('1', 'Failed')
    await without[Symbol.asyncDispose]()

    const again = await start({ source, bus, processes: changed({ one, two: version }, 3) })
    expect((await act(again, 'resume')).status).toBe(202)
    const run = await again.reached('1', 'Completed')
    expect(run.Items).toMatchObject([{ StepName: 'one' }, { StepName: 'two', Data: '1' }])
    await again[Symbol.asyncDispose]()
    host = undefined
  })

  it('after the steps of a process were reordered, a run executes each of its unfinished steps once', async () => {
    await using source = await opened.backends().openSource({ sweepMs: 50 })
    await using bus = await opened.backends().openBus()
    const calls: string[] = []
    const step = (name: string) => (given: Step) => {
      calls.push(name)
      given.complete(name)
    }
    const wait = (given: Step) => given.waitFor(10)
    const before = await start({
      source,
      bus,
      processes: changed({ one: step('one'), two: wait, three: step('three') }),
    })
    await before.queue('2')
    await until(async () => (await before.run('2')).StepName === 'two')
    await before[Symbol.asyncDispose]()

    const steps = { two: step('two'), one: step('one again'), three: step('three') }
    const after = await start({ source, bus, processes: changed(steps) })
    await after.reached('2', 'Completed')
    expect(calls).toEqual(['one', 'two', 'three'])
    await after[Symbol.asyncDispose]()
    host = undefined
  })
})
