import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { defineProcess, secret, z } from 'integration-host'
import { startTargetServer, startTestHost } from 'integration-host/testing'
import { describe, expect, it } from 'vitest'

const ERP = 'https://erp.test'
const SECRET = 'canary-erp-key-0123456789'

/** Sends an order to the ERP system, then a message to a customer. */
const orders = defineProcess('Orders', {
  input: z.object({ amount: z.number().positive() }),
  settings: { erpUrl: z.url(), erpKey: secret() },
  targets: ({ erpUrl, erpKey }) => ({ erp: { url: erpUrl, auth: { bearer: erpKey } } }),
})
  .step('order', (step) =>
    step.execute(
      { target: 'erp', path: '/orders', method: 'POST', body: { amount: step.initialData.amount } },
      { parse: (body) => z.object({ id: z.string() }).parse(body).id },
    ),
  )
  .step(
    'message',
    (step) =>
      step.execute({ url: 'https://mail.test/messages', method: 'POST', body: step.previous.data }),
    {
      async confirm(step) {
        const sent = await step.find({
          url: 'https://mail.test/messages',
          query: { key: step.idempotencyKey },
        })
        return sent === null ? 'not_done' : step.complete()
      },
    },
  )

async function startOrders() {
  const host = await startTestHost({
    processes: orders,
    settings: { Orders: { erpUrl: ERP, erpKey: SECRET } },
    startsAt: '2026-11-20T08:00:00Z',
  })
  const erp = host.target(ERP).on('POST /orders', { status: 201, body: { id: '7' } })
  const mail = host.target('https://mail.test').on('POST /messages', { status: 202 })
  return { host, erp, mail, [Symbol.asyncDispose]: () => host[Symbol.asyncDispose]() }
}

const polls = defineProcess('Polls').step('poll', async (step) => {
  const response = await step.fetch({ url: `${ERP}/reports/7` })
  if (response.status === 202) step.waitFor(30 * 86_400_000)
  return step.complete(response.status)
})

/**
 * Returns the processor time that this process has used since `startedAt`. Other processes of the machine do not affect
 * it.
 */
const cpuMs = (startedAt: NodeJS.CpuUsage): number => {
  const { user, system } = process.cpuUsage(startedAt)
  return (user + system) / 1_000
}

describe('a test host', () => {
  it('a test host runs a process to its end, and each target receives the calls with their idempotency keys', async () => {
    await using fixture = await startOrders()
    const run = await fixture.host.run(
      'Orders',
      'o-1',
      { amount: 66 },
      { tags: { channel: 'shop' } },
    )
    run.toHaveStatus('Completed')
    expect(run.data('order')).toBe('7')
    expect(run.view.Tags).toEqual({ channel: 'shop' })
    expect(run.view.CreatedAt).toBe('2026-11-20T08:00:00.000Z')
    fixture.erp.toHaveCalled('POST /orders', {
      times: 1,
      key: run.key('order'),
      headers: { authorization: `Bearer ${SECRET}` },
      body: { amount: 66 },
    })
    fixture.mail.toHaveCalled('POST /messages', { times: 1, key: run.key('message'), body: '7' })
    expect(JSON.stringify(run.view)).not.toContain(SECRET)
  })

  it('a run with notBefore starts when the clock of the test host reaches this time', async () => {
    await using fixture = await startOrders()
    const run = await fixture.host.run('Orders', 'o-1', { amount: 66 }, { notBefore: 3_600 })
    expect(run.view.NotBefore).toBe('2026-11-20T09:00:00.000Z')
    await fixture.host.advance('59 minutes')
    run.toHaveStatus('Queued')
    await fixture.host.advance('61 seconds')
    run.toHaveStatus('Completed')
  })

  it('transactions with the same debounce key become one run in a test host, with the data of the last transaction', async () => {
    await using fixture = await startOrders()
    const debounce = { Key: 'o', Seconds: 60 }
    const first = await fixture.host.run('Orders', 'o-1', { amount: 1 }, { debounce })
    await fixture.host.advance('30 seconds')
    const second = await fixture.host.run('Orders', 'o-2', { amount: 2 }, { debounce })
    expect(second.id).toBe(first.id)
    await fixture.host.advance('31 seconds')
    first.toHaveStatus('Queued')
    await fixture.host.advance('30 seconds')
    first.toHaveStatus('Completed')
    fixture.erp.toHaveCalled('POST /orders', { times: 1, body: { amount: 2 } })
  })

  it('a test of ten retries of a step takes less than five seconds of processor time', async () => {
    const startedAt = process.cpuUsage()
    await using fixture = await startOrders()
    fixture.erp.on('POST /orders', { status: 503 })
    const run = await fixture.host.run('Orders', 'o-1', { amount: 1 })
    run.toHaveStatus('Retrying')
    await fixture.host.advance('1 hour')
    run.toHaveStatus('Failed')
    expect(run.errorClass).toBe('http_503')
    fixture.erp.toHaveCalled('POST /orders', { times: 10, key: run.key('order') })
    const waits = fixture.erp.calls
      .slice(1)
      .map(({ at }, index) => at - (fixture.erp.calls[index]?.at ?? 0))
    expect(waits.map((ms) => Math.ceil(ms / 1_000))).toEqual([1, 2, 4, 8, 16, 32, 64, 128, 256])
    expect(cpuMs(startedAt)).toBeLessThan(5_000)
  })

  it('a test in which a step waits for 90 days takes less than five seconds of processor time', async () => {
    const startedAt = process.cpuUsage()
    await using host = await startTestHost({ processes: [polls] })
    const erp = host.target(ERP).on('GET /reports/:id', [{ status: 202 }, { status: 202 }, {}])
    const run = await host.run(polls, 'r-1')
    await host.advance('59 days')
    run.toHaveStatus('Retrying')
    erp.toHaveCalled('GET /reports/7', { times: 2 })
    await host.advance('31 days')
    run.toHaveStatus('Completed')
    expect(cpuMs(startedAt)).toBeLessThan(5_000)
  })

  it('a test host fails a run at its deadline, and a resumed run gets a new deadline', async () => {
    const twoDays = { ...polls, deadlineMs: 2 * 86_400_000 }
    await using host = await startTestHost({ processes: [twoDays] })
    host.target(ERP).on('GET /reports/:id', [{ status: 202 }, {}])
    const run = await host.run('Polls', 'r-1')
    await host.advance('47 hours')
    run.toHaveStatus('Retrying')
    await host.advance('61 minutes')
    expect([run.status, run.errorClass]).toEqual(['Failed', 'deadline_exceeded'])
    await run.resume()
    run.toHaveStatus('Completed')
  })

  it('a test host purges a completed run after 90 days, as an installation does by default', async () => {
    await using host = await startTestHost({ processes: [polls] })
    host.target(ERP).on('GET /reports/:id', { status: 200 })
    const run = await host.run('Polls', 'r-1', { person: 'Ada' })
    await host.advance('89 days')
    expect(run.isPurged).toBe(false)
    await host.advance('2 days')
    expect(run.isPurged).toBe(true)
    expect(JSON.stringify(run.view)).not.toContain('Ada')
  })

  it('a call without a response ends at its time limit, and `confirm` is called before the next attempt', async () => {
    await using fixture = await startOrders()
    fixture.mail
      .on('POST /messages', ['no response', { status: 202 }])
      .on('GET /messages', { status: 404 })
    const run = await fixture.host.run('Orders', 'o-1', { amount: 1 })
    run.toHaveStatus('Running')
    await fixture.host.advance('59 seconds')
    run.toHaveStatus('Running')
    await fixture.host.advance('1 second')
    expect([run.status, run.errorClass, run.isInDoubt]).toEqual(['Retrying', 'no_answer', true])
    await fixture.host.advance('1 minute')
    run.toHaveStatus('Completed')
    expect(fixture.mail.calls.map(({ method }) => method)).toEqual(['POST', 'GET', 'POST'])
  })

  it('a step whose target responds after twenty minutes keeps its lease, so it runs only once', async () => {
    const slow = defineProcess('Slow', { stepTimeoutSeconds: 1_500 }).step('one', (step) =>
      step.execute({ url: `${ERP}/slow` }, { timeoutMs: 1_400_000 }),
    )
    await using host = await startTestHost({ processes: slow })
    const erp = host.target(ERP).on('GET /slow', { after: '20 minutes', body: { done: true } })
    const run = await host.run(slow, 's-1')
    await host.advance('1 hour')
    expect(run.status).toBe('Completed')
    erp.toHaveCalled('GET /slow', { times: 1 })
  })

  it('a step that asks for JSON retries a text of its target, as it does with a server', async () => {
    await using fixture = await startOrders()
    fixture.erp.on('POST /orders', [{ body: 'Back soon' }, { status: 201, body: '{"id":"8"}' }])
    const run = await fixture.host.run('Orders', 'o-1', { amount: 1 })
    expect(run.errorClass).toBe('response_not_json')
    await fixture.host.advance('1 minute')
    expect(run.data('order')).toBe('8')
  })

  it('a test host retries a step after a refused connection and after a closed connection', async () => {
    await using fixture = await startOrders()
    fixture.erp.on('POST /orders', ['refuse', 'hang up', { status: 201, body: { id: '8' } }])
    const run = await fixture.host.run('Orders', 'o-1', { amount: 1 })
    expect(run.errorClass).toBe('network')
    await fixture.host.advance('2 seconds')
    expect(run.errorClass).toBe('no_answer')
    await fixture.host.advance('1 minute')
    expect(run.data('order')).toBe('8')
    fixture.erp.toHaveCalled('POST /orders', { times: 2 })
  })

  it('a test host retries a rejected step after the Retry-After time of its target, and does not count the rejected attempt', async () => {
    await using fixture = await startOrders()
    const limited = { status: 429, headers: { 'retry-after': '600' } }
    fixture.erp.on('POST /orders', [limited, { status: 201, body: { id: '7' } }])
    const run = await fixture.host.run('Orders', 'o-1', { amount: 1 })
    await fixture.host.advance('599 seconds')
    run.toHaveStatus('Retrying')
    await fixture.host.advance('2 seconds')
    run.toHaveStatus('Completed')
    expect(fixture.erp.calls).toHaveLength(2)
  })

  it('a test host resumes, replays and cancels runs', async () => {
    await using fixture = await startOrders()
    fixture.erp.on('POST /orders', [{ status: 400 }, { status: 201, body: { id: '7' } }])
    const run = await fixture.host.run('Orders', 'o-1', { amount: 1 })
    run.toHaveStatus('Failed')
    await run.resume()
    run.toHaveStatus('Completed')
    const replay = await run.replay({ fromStep: 'message' })
    replay.toHaveStatus('Completed')
    expect(replay.replayId).toBe(1)
    expect(replay.key('message')).toBe('Orders/o-1/1/message')
    fixture.erp.toHaveCalled('POST /orders', { times: 2, key: run.key('order') })
    fixture.mail.toHaveCalled('POST /messages', { times: 1, key: replay.key('message') })
    fixture.erp.on('POST /orders', { status: 503 })
    const other = await fixture.host.run('Orders', 'o-2', { amount: 1 })
    await other.cancel()
    other.toHaveStatus('Cancelled')
    await expect(run.resume()).rejects.toThrow(
      'only a run that has failed or was cancelled can be resumed',
    )
  })

  it('a run in a test host waits for the only slot of its process until another run has ended', async () => {
    const one = defineProcess('One', { concurrency: 1 }).step('call', (step) =>
      step.execute({ url: `${ERP}/slow` }),
    )
    await using host = await startTestHost({ processes: one })
    host.target(ERP).on('GET /slow', { after: '30 seconds' })
    const first = await host.run(one, 'c-1')
    const second = await host.run(one, 'c-2')
    await host.advance('29 seconds')
    expect([first.status, second.view.Attempts]).toEqual(['Running', []])
    await host.advance('1 minute')
    expect([first.status, second.status]).toEqual(['Completed', 'Completed'])
  })

  it('a promise that a step does not await fails its attempt if it is rejected, and not the test', async () => {
    const forgetful = defineProcess('Forgetful', {}).step('one', (step) => {
      if (step.attempt === 1) void Promise.reject(new Error('forgotten'))
      return step.complete()
    })
    await using host = await startTestHost({ processes: forgetful })
    const run = await host.run(forgetful, 'f-1')
    expect([run.status, run.errorClass]).toEqual(['Retrying', 'step_unhandled_rejection'])
    await host.advance('1 minute')
    run.toHaveStatus('Completed')
  })

  it('a promise that is rejected after the attempt has ended is an error of the test host', async () => {
    const rejected = Promise.withResolvers<void>()
    const forgetful = defineProcess('Forgetful', {}).step('one', (step) => {
      void rejected.promise.then(() => Promise.reject(new Error('forgotten')))
      return step.complete()
    })
    await using host = await startTestHost({ processes: forgetful })
    const run = await host.run(forgetful, 'f-1')
    rejected.resolve()
    await expect(host.advance('1 second')).rejects.toThrow(
      /Forgetful\.one: step left work behind .*: forgotten/,
    )
    run.toHaveStatus('Completed')
  })

  it('a target server receives the calls of `execute` and the calls that a step makes with the global `fetch`', async () => {
    const own = defineProcess('Own', { settings: { url: z.url() } })
      .step('fetch', async (step) => {
        const response = await fetch(`${step.settings.url}/orders?dry=yes`, {
          method: 'POST',
          headers: { 'content-type': 'application/json', 'idempotency-key': step.idempotencyKey },
          body: JSON.stringify({ amount: 66 }),
        })
        return step.complete(await response.text())
      })
      .step('execute', (step) => step.execute({ url: `${step.settings.url}/orders/7` }))
    await using erp = await startTargetServer()
    erp.on('POST /orders', ['hang up', { status: 201, body: '7' }])
    erp.on('GET /orders/:id', [{ status: 503 }, {}])
    await using host = await startTestHost({ processes: own, settings: { Own: { url: erp.url } } })
    const run = await host.run(own, 'o-1')
    expect([run.status, run.errorClass]).toEqual(['Retrying', 'step_threw'])
    await host.advance('1 minute')
    run.toHaveStatus('Completed')
    expect(run.data('fetch')).toBe('7')
    const query = { dry: 'yes' }
    erp.toHaveCalled('POST /orders', {
      times: 2,
      key: run.key('fetch'),
      query,
      body: { amount: 66 },
    })
    erp.toHaveCalled('GET /orders/:id', { times: 2, key: run.key('execute') })
  })

  it('the files that steps write are in a folder that is removed with the test host', async () => {
    const files = defineProcess('Files').step('write', async (step) => {
      await step.files.writeAtomic(join(step.settings.dataDir, 'a.csv'), 'a;b')
      return step.complete()
    })
    let dataDir = ''
    {
      await using host = await startTestHost({ processes: files })
      dataDir = host.dataDir
      const run = await host.run(files, 'f-1')
      run.toHaveStatus('Completed')
      expect(await readFile(join(dataDir, 'a.csv'), 'utf8')).toBe('a;b')
    }
    await expect(readFile(join(dataDir, 'a.csv'))).rejects.toThrow('ENOENT')
  })

  it('a test host loads the processes of a folder with the values of their settings', async () => {
    const folder = join(import.meta.dirname, '../../../examples')
    await using host = await startTestHost({
      processes: folder,
      settings: { ReportProcess: { erpUrl: ERP, erpKey: SECRET, pollSeconds: 600 } },
    })
    host
      .target(ERP)
      .on('POST /reports', { body: { id: '7' } })
      .on('GET /reports/7', [{ status: 202 }, { body: { rows: 66 } }])
    const run = await host.run('ReportProcess', 'r-1', { month: '2026-10' })
    run.toHaveStatus('Retrying')
    await host.advance('10 minutes')
    expect(run.data('rows')).toBe(66)
  })
})
