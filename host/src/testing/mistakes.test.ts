/**
 * The errors that a test host throws: for an expectation that is not met, and for a mistake in the test
 * itself.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { defineProcess, secret, z } from 'integration-host'
import { type Duration, startTestHost } from 'integration-host/testing'
import { runProcess } from '@integration-host/shared/test-support/start-process'
import { describe, expect, it } from 'vitest'

const ERP = 'https://erp.test'

const orders = defineProcess('Orders', {
  input: z.object({ amount: z.number().positive() }),
}).step('order', (step) =>
  step.execute({ url: `${ERP}/orders`, method: 'POST', body: { amount: step.initialData.amount } }),
)

const exported = defineProcess('Export', {
  settings: { url: z.url(), key: secret() },
}).step('one', (step) => step.complete())

const messageOf = (call: () => unknown): string => {
  try {
    call()
  } catch (error) {
    if (error instanceof Error) return error.message
  }
  return 'nothing was thrown'
}

describe('an invalid change that a test reports to a test host', () => {
  const changed = defineProcess('Changed', {
    on: [{ provider: 'intuit', entity: 'Invoice', operations: ['create'] }],
  }).step('one', (step) => step.complete())

  it.each<[entity: string, change: object, message: string]>([
    ['Invoce', {}, 'the entity of change is "Invoce"; it must be one of: Account, Bill'],
    ['Invoice', { operation: 'created' }, 'the operation of change is "created"'],
    ['Invoice', { id: '' }, 'the change is not valid: EntityId must be 1-20'],
    ['Invoice', { at: 'now' }, 'at must be a time in ISO 8601, not now'],
  ])(
    'change() rejects an invalid change with an error that names the member: %s %j',
    async (entity, given, message) => {
      await using host = await startTestHost({ processes: changed })
      await host.company('42')
      const change = { realm: '42', id: '1', operation: 'create', ...given }
      await expect(host.change(entity as 'Invoice', change as never)).rejects.toThrow(message)
    },
  )
})

describe('an expectation of a test that is not met', () => {
  async function startWithCalls() {
    const host = await startTestHost({ processes: orders })
    const erp = host.target(`${ERP}/`).on('POST /orders', { status: 201 })
    const run = await host.run(orders, 'o-1', { amount: 66 })
    return { host, erp, run, [Symbol.asyncDispose]: () => host[Symbol.asyncDispose]() }
  }

  it('the error of toHaveCalled() lists the calls of the route with their keys and bodies', async () => {
    await using fixture = await startWithCalls()
    expect(messageOf(() => fixture.erp.toHaveCalled('POST /orders', { times: 2 }))).toBe(
      [
        'expected 2 calls of POST /orders at https://erp.test, but there was 1',
        'calls of POST /orders:',
        '  1. POST /orders  key Orders/o-1/0/order  body {"amount":66}',
      ].join('\n'),
    )
    expect(
      messageOf(() => fixture.erp.toHaveCalled('POST /orders', { body: { amount: 67 } })),
    ).toBe(
      [
        'expected a call of POST /orders at https://erp.test with body {"amount":67}, but there were none',
        'calls of POST /orders:',
        '  1. POST /orders  key Orders/o-1/0/order  body {"amount":66}',
      ].join('\n'),
    )
  })

  it('the error of toHaveCalled() lists the calls of other routes if the route had no call', async () => {
    await using fixture = await startWithCalls()
    expect(messageOf(() => fixture.erp.toHaveCalled('GET /orders/:id'))).toMatch(
      /^expected a call of GET \/orders\/:id at .*, but there were none\nother calls:\n {2}1\. POST \/orders/,
    )
    expect(messageOf(() => fixture.host.target('https://b.test').toHaveCalled('GET /'))).toMatch(
      /The target received no calls\.$/,
    )
  })

  it('toHaveCalled() compares only the given members of a body, but every element of a list', async () => {
    const lists = defineProcess('Lists').step('one', (step) =>
      step.execute({
        url: `${ERP}/lists`,
        method: 'PUT',
        body: { a: 1, list: [{ b: 1, c: 2 }, 3] },
      }),
    )
    await using host = await startTestHost({ processes: lists })
    const erp = host.target(ERP).on('PUT /lists', {})
    await host.run(lists, 'l-1')
    erp.toHaveCalled('PUT /lists', { body: { list: [{ b: 1 }, 3] } })
    expect(() => erp.toHaveCalled('PUT /lists', { body: { list: [{ b: 1 }] } })).toThrow('none')
    expect(() => erp.toHaveCalled('PUT /lists', { body: { d: undefined } })).toThrow('none')
    expect(() => erp.toHaveCalled('PUT /lists', { times: 0 })).toThrow('there was 1')
    erp.toHaveCalled('PUT /lists', { times: 0, key: 'another' })
  })

  it('the error of toHaveStatus() is an AssertionError, and has the actual and the expected status for the test runner', async () => {
    await using fixture = await startWithCalls()
    expect(() => fixture.run.toHaveStatus('Failed')).toThrow(
      expect.objectContaining({
        name: 'AssertionError',
        actual: 'Completed',
        expected: 'Failed',
        message: 'expected Orders o-1 to be Failed, but it is Completed at step order, attempt 1',
      }),
    )
  })

  it('the error of toHaveStatus() contains the last error of the run', async () => {
    await using host = await startTestHost({ processes: orders })
    host.target(ERP).on('POST /orders', { status: 422 })
    const run = await host.run(orders, 'o-1', { amount: 1 })
    const why = 'Failed at step order, attempt 1: POST https://erp.test/orders responded with 422'
    expect(() => run.toHaveStatus('Completed')).toThrow(why)
    expect(() => run.data('order')).toThrow(`the step order of Orders o-1 is not completed: ${why}`)
  })
})

describe('a mistake in a test that uses a test host', () => {
  it('the error for a call to an address without a target names the step and the remedy', async () => {
    await using host = await startTestHost({ processes: orders })
    await expect(host.run(orders, 'o-1', { amount: 1 })).rejects.toThrow(
      "the step Orders.order called POST https://erp.test/orders, which has no target: create one with host.target('https://erp.test')",
    )
  })

  it('a fake target responds with 404 if the test has set no reply for the route', async () => {
    await using host = await startTestHost({ processes: orders })
    host.target(ERP).on('POST /others', {})
    const run = await host.run(orders, 'o-1', { amount: 1 })
    expect(run.errorClass).toBe('http_404')
    expect(run.view.Items[0]?.ResponseBody).toContain('has no reply to POST /orders')
  })

  it('the error for an unknown process lists the known processes', async () => {
    await using host = await startTestHost({ processes: orders })
    await expect(host.run('Ordres', 'o-1')).rejects.toThrow(
      'the test host has no process Ordres: it has Orders',
    )
  })

  it('if a process does not accept the initial data, the error of a test host contains the paths of the invalid values', async () => {
    await using host = await startTestHost({ processes: orders })
    await expect(host.run(orders, 'o-1', { amount: -1 })).rejects.toThrow(
      /^InitialData\.amount: [^\n]*$/,
    )
    await expect(host.run(orders, '', { amount: 1 })).rejects.toThrow('TransactionID')
    host.target(ERP).on('POST /orders', {})
    await host.run(orders, 'o-1', { amount: 1 })
    await expect(host.run(orders, 'o-1', { amount: 2 })).rejects.toThrow('the id exists')
  })

  it('one error reports all missing, wrong and unknown settings of a test host, without values', async () => {
    const start = startTestHost({
      processes: exported,
      settings: { Export: { url: 'not-a-url', kye: 'a-secret-value' } },
    })
    const { message } = (await start.catch((error: unknown) => error)) as Error
    expect(message.split('\n')).toEqual([
      'the test host cannot run these processes:',
      expect.stringMatching(/^Export: EXPORT_URL/),
      expect.stringMatching(/^Export: EXPORT_KEY/),
    ])
    expect(message).not.toMatch(/not-a-url|a-secret-value/)
    const settings = { Export: { url: ERP, key: 'long-enough', kye: 'x' }, Exprot: { url: ERP } }
    await expect(startTestHost({ processes: exported, settings })).rejects.toThrow(
      'settings: the process Export declares no setting kye\nsettings: no process has the name Exprot',
    )
  })

  it('startTestHost() rejects a folder that does not exist and a process file that does not load, and reports the reason', async () => {
    await expect(startTestHost({ processes: './no-such-folder' })).rejects.toThrow(
      /no-such-folder: the folder does not exist/,
    )
    const folder = await mkdtemp(join(tmpdir(), 'kit-'))
    try {
      await writeFile(join(folder, 'bad.ts'), "import './gone.ts'\nexport default 1\n")
      await expect(startTestHost({ processes: folder })).rejects.toThrow(/bad\.ts:1: .*gone\.ts/)
    } finally {
      await rm(folder, { recursive: true })
    }
  })

  it.each(['30 das', '-1 days', 'days', Number.NaN, -5, '1  day'])(
    'a test host rejects the duration %j',
    async (duration) => {
      await using host = await startTestHost({ processes: orders })
      await expect(host.advance(duration as Duration)).rejects.toThrow('is not a duration')
    },
  )

  it.each(['POST orders', 'orders', 'post /orders', ''])(
    'a fake target rejects the route %j',
    async (route) => {
      await using host = await startTestHost({ processes: orders })
      expect(() => host.target(ERP).on(route, {})).toThrow('is not a route')
    },
  )

  it.each(['erp', '', '//erp.test', 'ftp://erp.test'])(
    'a test host rejects the address %j of a target, and the error contains a valid address',
    async (address) => {
      await using host = await startTestHost({ processes: orders })
      expect(() => host.target(address)).toThrow(
        /must be the URL of the target, such as https:\/\/erp\.test, and not its name$/,
      )
    },
  )

  it('a test host rejects a start time that is not a time', async () => {
    await expect(startTestHost({ processes: orders, startsAt: 'yesterday' })).rejects.toThrow(
      'startsAt: yesterday is not a time',
    )
  })

  it('the error for a step that does not end names the step and a possible cause', async () => {
    const released = Promise.withResolvers<void>()
    const stuck = defineProcess('Stuck').step('one', async (step) => {
      await released.promise
      return step.complete()
    })
    await using host = await startTestHost({ processes: stuck, realTimeLimitMs: 50 })
    await expect(host.run(stuck, 's-1')).rejects.toThrow(
      /^Stuck\.one did not end\. The clock of the test does not move timers of your own code/,
    )
    released.resolve()
  })
})

describe('misspelt options of a test host', () => {
  const waits = defineProcess('Waits').step('one', (step) => step.execute({ url: `${ERP}/orders` }))

  it('startTestHost() and run() reject unknown options, and list the known ones', async () => {
    const options = { proceses: waits } as unknown as Parameters<typeof startTestHost>[0]
    await expect(startTestHost(options)).rejects.toThrow(
      "the argument of startTestHost has no member 'proceses'; the members are: processes, settings, startsAt, realTimeLimitMs",
    )
    await using host = await startTestHost({ processes: waits })
    await expect(host.run(waits, 'w-1', null, { relm: '1' } as object)).rejects.toThrow(
      "the last argument of run has no member 'relm'",
    )
  })

  it('kill() rejects a step name that no process has', async () => {
    await using host = await startTestHost({ processes: waits })
    expect(() => host.kill('after request', 'two')).toThrow('"two"; it must be one of: one')
  })

  it.each<[unknown, string]>([
    ['explode', '"explode"; it must be one of: refuse, hang up, no response'],
    [{ stats: 200 }, "has no member 'stats'; the members are: status, headers, body, after"],
    [{ status: 99 }, 'has the status 99; it must be from 200 to 599'],
    [[{ status: 200 }, null], 'must be an object'],
  ])('a target rejects the reply %j', async (reply, message) => {
    await using host = await startTestHost({ processes: waits })
    expect(() => host.target(ERP).on('GET /orders', reply as 'refuse')).toThrow(message)
  })
})

describe('a test host that was disposed of', () => {
  it('a test host leaves no timer or server that keeps the OS process alive after the host was disposed of', async () => {
    const script = `
      import { defineProcess } from '${new URL('../../../services/coordinator/src/step/api.ts', import.meta.url).href}'
      import { startTestHost } from '${new URL('testing.ts', import.meta.url).href}'
      const waits = defineProcess('Waits').step('one', (step) => step.execute({ url: 'https://a.test/' }))
      const host = await startTestHost({ processes: waits })
      host.target('https://a.test').on('GET /', 'no response')
      await host.company('42')
      const run = await host.run(waits, 'w-1')
      await host[Symbol.asyncDispose]()
      console.log(run.status, process.getActiveResourcesInfo().filter((name) => !/^(?:PipeWrap|FSReq)/.test(name)))`
    const ended = await runProcess(['--input-type=module', '-e', script])
    expect(ended).toMatchObject({ code: 0, stdout: 'Running []\n', stderr: '' })
  })
})
