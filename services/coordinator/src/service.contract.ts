import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { stepRoutingKey, STEPS_EXCHANGE } from '@integration-host/shared/contracts/topology'
import type { MessageBus } from '@integration-host/shared/messaging/message-bus'
import { until } from '@integration-host/shared/test-support/eventually'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import {
  type Backends,
  type Fixture,
  type FixtureOptions,
  openBackends,
  serviceKey,
  startFixture,
  watchEvents,
} from '../test-support/fixture.ts'
import { publishCredentialEvent } from '../test-support/credential-event.ts'
import { startFakeInternet } from '../test-support/fake-internet.ts'
import { respondWith } from '../test-support/fake-target.ts'
import { processOf } from '../test-support/process-of.ts'
import type { ProcessDefinition } from './step/definition.ts'
import type { ProcessOptions } from './step/process-options.ts'
import type { Step } from './step/step.ts'

/**
 * Tests the behaviour of a coordinator. The behaviour must be the same on RabbitMQ and PostgreSQL as on the embedded
 * bus and the memory source. The smoke consists of the tests of runs and of failing calls.
 */
export function coordinatorContract(
  kind: 'embedded' | 'real',
  dispatch: ProcessDefinition['dispatch'],
  extent: 'whole' | 'smoke' = 'whole',
): void {
  describe(`a coordinator on ${kind} backends, dispatch '${dispatch}'`, () => {
    let backends: Backends
    let fixture: Fixture | undefined
    beforeAll(async () => {
      backends = await openBackends(kind, {
        OrderProcess: ['order', 'report', 'csv'],
        Trial: ['first', 'second'],
      })
    })
    afterEach(async () => {
      await fixture?.[Symbol.asyncDispose]()
      fixture = undefined
    })
    afterAll(() => backends[Symbol.asyncDispose]())

    const start = async (options: FixtureOptions = {}): Promise<Fixture> => {
      fixture = await startFixture(backends, { dispatch, ...options })
      return fixture
    }
    const fresh = (): string => crypto.randomUUID()
    const post = (path: string, body?: unknown): RequestInit & { path: string } => ({
      path,
      method: 'POST',
      ...(body !== undefined && { body: JSON.stringify(body) }),
    })
    const act = async (host: Fixture, id: string, action: string, body?: unknown) => {
      const { path, ...init } = post(
        `/processes/${host === fixture ? processName : ''}/transactions/${encodeURIComponent(id)}/${action}`,
        body,
      )
      return host.call(path, init)
    }
    let processName = 'OrderProcess'
    /** A process with two steps. The first step is the given function, and the second step completes. */
    const trial = (
      first: (step: Step) => unknown,
      options: Pick<
        ProcessOptions,
        'retry' | 'stepTimeoutSeconds' | 'requireInternet' | 'deadlineSeconds'
      > = {},
    ) => {
      processName = 'Trial'
      const second = (step: Step) => void step.complete()
      return [processOf('Trial', { ...options, steps: { first, second } })]
    }
    afterEach(() => (processName = 'OrderProcess'))
    const csvFiles = async (id: string): Promise<string[]> =>
      (await readdir(join(backends.dataDir, 'OrderCSV'))).filter((name) => name.includes(id))

    describe('running an order', () => {
      it('the coordinator runs the steps order, report and csv of an order, and writes its CSV file', async () => {
        const host = await start()
        const id = fresh()
        const queued = await host.queue(id)
        expect(queued.status).toBe(202)
        expect(await queued.json()).toMatchObject({ TransactionID: id, Status: 'Queued' })
        const run = await host.reached(id, 'Completed')
        expect(run.Items.map(({ StepName, Status }) => `${StepName} ${Status}`)).toEqual([
          'order Completed',
          'report Completed',
          'csv Completed',
        ])
        const [orderCall, reportCall, ...others] = host.target.calls
        expect(others).toEqual([])
        expect(orderCall).toMatchObject({
          method: 'GET',
          path: '/order',
          query: { order: `O-${id}` },
        })
        expect(reportCall?.query).toEqual({
          order: `O-${id}`,
          created: '2026-11-20T21:24:19.3210000+01:00',
        })
        expect(orderCall?.headers['idempotency-key']).toBe(`OrderProcess/${id}/0/order`)
        expect(reportCall?.headers['idempotency-key']).toBe(`OrderProcess/${id}/0/report`)
        const traces = [orderCall, reportCall].map((call) =>
          /^00-([0-9a-f]{32})-([0-9a-f]{16})-01$/.exec(String(call?.headers['traceparent'])),
        )
        expect(traces[0]?.[1]).toBe(traces[1]?.[1])
        expect(traces[0]?.[2]).not.toBe(traces[1]?.[2])
        expect(
          await readFile(join(backends.dataDir, 'OrderCSV', `Order_${id}.0.csv`), 'utf8'),
        ).toBe(`Order,CreatedAt,Status\nO-${id},2026-11-20T21:24:19.3210000+01:00,Confirmed\n`)
      })

      it('the coordinator logs the start and the end of each step', async () => {
        const host = await start()
        const id = fresh()
        await host.queue(id)
        await host.reached(id, 'Completed')
        await until(() => host.log.filter(({ msg }) => msg === 'step completed').length === 3)
        expect(
          host.log.filter(({ msg }) => msg === 'step started').map(({ step }) => step),
        ).toEqual(['order', 'report', 'csv'])
        expect(host.log.some(({ msg }) => msg === 'coordinator starting')).toBe(true)
      })

      it('a transaction runs once if a thousand requests queue it, two hundred of them at a time', async () => {
        const host = await start()
        const id = fresh()
        const responses: Response[] = []
        for (let sent = 0; sent < 1_000; sent += 200)
          responses.push(...(await Promise.all(Array.from({ length: 200 }, () => host.queue(id)))))
        const statuses = responses.map(({ status }) => status)
        expect(statuses.filter((status) => status === 202)).toHaveLength(1)
        expect(statuses.filter((status) => status === 200)).toHaveLength(999)
        await host.reached(id, 'Completed')
        expect((await host.queue(id)).status).toBe(200)
        const conflict = await host.queue(id, 'other')
        expect(conflict.status).toBe(409)
        expect(await conflict.json()).toMatchObject({ code: 'transaction_conflict' })
        expect(host.target.callsTo('/order')).toHaveLength(1)
        expect(await csvFiles(id)).toEqual([`Order_${id}.0.csv`])
      })

      it('the first replay of an order has ReplayID 1, uses new idempotency keys and writes a second file', async () => {
        const host = await start()
        const id = fresh()
        await host.queue(id)
        await host.reached(id, 'Completed')
        const replay = await act(host, id, 'replays')
        expect(replay.status).toBe(202)
        expect(await replay.json()).toMatchObject({ ReplayID: 1, Status: 'Queued' })
        await host.reached(id, 'Completed', 1)
        expect(
          host.target.callsTo('/order').map(({ headers }) => headers['idempotency-key']),
        ).toEqual([`OrderProcess/${id}/0/order`, `OrderProcess/${id}/1/order`])
        expect((await csvFiles(id)).toSorted()).toEqual([`Order_${id}.0.csv`, `Order_${id}.1.csv`])
      })

      it('a replay that begins at a later step does not repeat the calls of earlier steps', async () => {
        const host = await start()
        const id = fresh()
        await host.queue(id)
        await host.reached(id, 'Completed')
        expect((await act(host, id, 'replays', { fromStep: 'nowhere' })).status).toBe(400)
        expect((await act(host, id, 'replays', { fromStep: 'csv' })).status).toBe(202)
        const run = await host.reached(id, 'Completed', 1)
        expect(run.Items.map(({ Status }) => Status)).toEqual(['Copied', 'Copied', 'Completed'])
        expect(host.target.calls).toHaveLength(2)
        expect(await csvFiles(id)).toHaveLength(2)
      })

      it('a replay is rejected if the transaction is unknown or has an active run', async () => {
        const host = await start()
        const release = Promise.withResolvers<void>()
        host.target.on('/order', async () => (await release.promise, true))
        const id = fresh()
        await host.queue(id)
        const active = await act(host, id, 'replays')
        expect([active.status, ((await active.json()) as { code: string }).code]).toEqual([
          409,
          'transaction_active',
        ])
        const unknown = await act(host, fresh(), 'replays')
        expect([unknown.status, ((await unknown.json()) as { code: string }).code]).toEqual([
          404,
          'transaction_not_found',
        ])
        release.resolve()
        await host.reached(id, 'Completed')
      })

      it('an order whose id has special characters completes and gets a safe file name', async () => {
        const host = await start()
        const ids = ['../../etc/x', '=cmd()', 'a b é 😀', '%2F', '😀'.repeat(64), '漢'.repeat(128)]
        for (const id of ids) expect((await host.queue(id)).status).toBe(202)
        for (const id of ids) await host.reached(id, 'Completed')
        const names = await readdir(join(backends.dataDir, 'OrderCSV'))
        expect(names).toEqual(
          expect.arrayContaining(['Order_..%2F..%2Fetc%2Fx.0.csv', 'Order_%252F.0.csv']),
        )
        expect(names.every((name) => /^Order_[A-Za-z0-9%._-]{1,220}\.\d\.csv$/.test(name))).toBe(
          true,
        )
      })
    })

    describe('a failing call of a step', () => {
      it('a failing call is retried with the same Idempotency-Key until it succeeds', async () => {
        const host = await start()
        let failures = 2
        host.target.on('/order', (request, response) =>
          failures-- > 0
            ? respondWith(503, 'busy', { 'retry-after': '0' })(request, response)
            : true,
        )
        const id = fresh()
        await host.queue(id)
        const run = await host.reached(id, 'Completed')
        const keys = host.target.callsTo('/order').map(({ headers }) => headers['idempotency-key'])
        expect(keys).toEqual(Array(3).fill(`OrderProcess/${id}/0/order`))
        expect(run.Attempts.map(({ Outcome }) => Outcome)).toEqual([
          'http_503',
          'http_503',
          'completed',
          'completed',
          'completed',
        ])
      })

      it('a call that gets a 429 is repeated after the time in the Retry-After of the response', async () => {
        const host = await start()
        const times: number[] = []
        host.target.on('/order', (request, response) => {
          times.push(performance.now())
          return times.length === 1
            ? respondWith(429, '', { 'retry-after': '1' })(request, response)
            : true
        })
        const id = fresh()
        await host.queue(id)
        const retrying = await host.reached(id, 'Retrying')
        expect(retrying).toMatchObject({ Attempt: 1, ErrorClass: 'http_429', StepName: 'order' })
        await host.reached(id, 'Completed')
        expect((times[1] ?? 0) - (times[0] ?? 0)).toBeGreaterThan(950)
      })

      it('a permanent 4xx fails the run at once, and after a resume the call is repeated with the same idempotency key', async () => {
        const host = await start()
        let isFixed = false
        host.target.on('/report', (request, response) =>
          isFixed ? true : respondWith(404, 'no such report')(request, response),
        )
        const id = fresh()
        await host.queue(id)
        const failed = await host.reached(id, 'Failed')
        expect(failed).toMatchObject({ StepName: 'report', ErrorClass: 'http_404', Attempt: 1 })
        expect(failed.Items[1]).toMatchObject({
          Status: 'Failed',
          ResponseStatus: 404,
          ResponseBody: 'no such report',
        })
        isFixed = true
        expect((await act(host, id, 'resume')).status).toBe(202)
        await host.reached(id, 'Completed')
        expect(host.target.callsTo('/order')).toHaveLength(1)
        const keys = host.target.callsTo('/report').map(({ headers }) => headers['idempotency-key'])
        expect(keys).toEqual(Array(2).fill(`OrderProcess/${id}/0/report`))
      })

      it('a retry by an operator starts the next attempt of a waiting run at once', async () => {
        let isFixed = false
        const first = (step: Step) => {
          if (!isFixed) throw new Error('not yet')
          step.complete()
        }
        const retry = { baseMs: 3_600_000, capMs: 3_600_000 }
        const host = await start({ processes: trial(first, { retry }) })
        const id = fresh()
        await host.queue(id)
        expect(await host.reached(id, 'Retrying')).toMatchObject({ Attempt: 1 })
        isFixed = true
        expect((await act(host, id, 'retry')).status).toBe(202)
        const run = await host.reached(id, 'Completed')
        expect(run.Attempts.map(({ Attempt }) => Attempt)).toEqual([1, 2, 1])
      })

      it('if an operator settles a doubtful call as done, the call is not repeated, and the next step reads the data that the operator entered', async () => {
        processName = 'Trial'
        const first = (step: Step<string>) =>
          step.execute({ url: `${step.initialData}/charges`, method: 'POST' })
        const second = (step: Step<string, typeof first>) => void step.complete(step.previous.data)
        const steps = { first, second } as const
        const host = await start({
          processes: [processOf('Trial', { retry: { maxAttempts: 1 }, steps })],
        })
        host.target.on('/charges', respondWith(500))
        const id = fresh()
        await host.queue(id, host.target.url)
        expect(await host.reached(id, 'Failed')).toMatchObject({ InDoubt: true })
        const Data = { charge: 'C-1' }
        const settled = await act(host, id, 'settle', { Outcome: 'done', Data, Reason: 'seen' })
        expect([settled.status, await settled.json()]).toMatchObject([
          202,
          { Status: 'Running', StepName: 'second', InDoubt: false, CompletedAt: null },
        ])
        const run = await host.reached(id, 'Completed')
        expect(run.Items).toMatchObject([
          { StepName: 'first', Status: 'Completed', Data, ResponseStatus: null },
          { StepName: 'second', Status: 'Completed', Data },
        ])
        expect(host.target.callsTo('/charges')).toHaveLength(1)
      })

      it('if a step cannot parse the response to its call, its run fails and the response is stored', async () => {
        const host = await start()
        host.target.on(
          '/order',
          respondWith(200, '{"Order":', { 'content-type': 'application/json' }),
        )
        const id = fresh()
        await host.queue(id)
        const run = await host.reached(id, 'Failed')
        expect(run).toMatchObject({ ErrorClass: 'response_invalid' })
        expect(run.Items[0]).toMatchObject({ ResponseStatus: 200, ResponseBody: '{"Order":' })
      })

      it('a run waits while its credential cannot be refreshed, and no attempt is counted', async () => {
        let isFaulted = true
        const host = await start({
          processes: trial((step) =>
            step.execute(
              { url: '/v3/company/42/query', query: { query: 'select 1' } },
              { credential: 'ACC-42' },
            ),
          ),
        })
        host.target.on('/v3/company/42/query', (request, response) =>
          isFaulted ? respondWith(424, '{"code":"credential_faulted"}')(request, response) : true,
        )
        const id = fresh()
        await host.queue(id)
        expect(await host.reached(id, 'Waiting')).toMatchObject({
          Attempt: 0,
          ErrorClass: 'credential_faulted',
        })
        isFaulted = false
        await publishCredentialEvent(host.bus, 'stored', { Name: 'ACC-42', Version: 2 })
        await host.reached(id, 'Completed')
        const calls = host.target.callsTo('/v3/company/42/query')
        expect(calls).toHaveLength(2)
        expect(calls[0]?.headers['authorization']).toBe(`Bearer ${serviceKey}`)
      })

      it('a run whose period is closed waits for an operator with the closing date in its error, and a retry sends the same call again', async () => {
        const closed = {
          Fault: { Error: [{ code: '6210', Message: 'Account Period Closed', Detail: 'x' }] },
        }
        let isClosed = true
        const host = await start({
          processes: trial(
            (step) =>
              step.execute(
                { url: '/v3/company/42/invoice', method: 'POST', body: {} },
                { credential: 'ACC-42' },
              ),
            { retry: { maxAttempts: 1 } },
          ),
        })
        host.target.on('/v3/company/42/invoice', (request, response) =>
          isClosed ? respondWith(400, JSON.stringify(closed))(request, response) : true,
        )
        const preferences = { AccountingInfoPrefs: { BookCloseDate: '2026-10-31' } }
        host.target.on(
          '/v3/company/42/preferences',
          respondWith(200, JSON.stringify({ Preferences: preferences })),
        )
        const [id, other] = [fresh(), fresh()]
        await host.queue(id)
        await host.reached(id, 'Waiting')
        await host.queue(other)
        for (const one of [id, other])
          expect(await host.reached(one, 'Waiting')).toMatchObject({
            Attempt: 0,
            InDoubt: false,
            ErrorClass: 'books_closed',
            WaitingFor: 'books:42',
            LastError: expect.stringMatching(
              /^6210 Account Period Closed: the books of the company are closed for this period, until 2026-10-31 \(POST .* responded with 400\)\. Have the period opened/,
            ),
          })
        expect(host.target.callsTo('/v3/company/42/preferences')).toHaveLength(1)
        isClosed = false
        for (const one of [id, other]) {
          expect((await act(host, one, 'retry')).status).toBe(202)
          await host.reached(one, 'Completed')
        }
        const keys = host.target
          .callsTo('/v3/company/42/invoice')
          .map(({ headers }) => headers['idempotency-key'])
        expect(keys).toEqual([
          `Trial/${id}/0/first`,
          `Trial/${other}/0/first`,
          `Trial/${id}/0/first`,
          `Trial/${other}/0/first`,
        ])
      })
    })

    if (extent === 'smoke') return

    describe('calls for a company after a 429 response', () => {
      const ofCompany = (step: Step) =>
        step.execute(
          { url: `/v3/company/${step.realm}/query` },
          { credential: `ACC-${step.realm}` },
        )
      const path = '/v3/company/42/query'

      it('after a 429 for one company, the coordinator sends no further call for this company until the cool-down has ended', async () => {
        const host = await start({ processes: trial(ofCompany) })
        host.target.on(path, respondWith(429, '', { 'retry-after': '60' }))
        const [first, blocked, free] = [fresh(), fresh(), fresh()]
        await host.queue(first, first, '42')
        expect(await host.reached(first, 'Retrying')).toMatchObject({ ErrorClass: 'http_429' })
        await host.queue(blocked, blocked, '42')
        const { ErrorClass, Attempts } = await host.reached(blocked, 'Retrying')
        expect([ErrorClass, Attempts]).toEqual(['credential_held', []])
        await host.queue(free, free, '43')
        await host.reached(free, 'Completed')
        expect(host.target.callsTo(path)).toHaveLength(1)
        for (const id of [first, blocked])
          await host.call(`/processes/Trial/transactions/${id}/cancel`, { method: 'POST' })
      })

      it('a call that gets a 429 is repeated after the cool-down, and the attempt is not counted', async () => {
        const host = await start({ processes: trial(ofCompany, { retry: { maxAttempts: 1 } }) })
        host.target.on(path, (request, response) =>
          host.target.callsTo(path).length > 2
            ? true
            : respondWith(429, '', { 'retry-after': '1' })(request, response),
        )
        const id = fresh()
        await host.queue(id, id, '42')
        const run = await host.reached(id, 'Completed')
        expect(run.Items[0]).toMatchObject({ Attempt: 1, ResponseStatus: 200 })
        expect(run.Attempts.map(({ Outcome }) => Outcome)).toEqual([
          'http_429',
          'http_429',
          'completed',
          'completed',
        ])
      })
    })

    it('waitFor() never counts as an attempt of its step, however often the step calls it', async () => {
      let times = 0
      const waiting = (step: Step) => {
        times += 1
        if (times <= 2) step.waitFor(1)
        step.complete({ attempt: step.attempt })
      }
      const host = await start({ processes: trial(waiting, { retry: { maxAttempts: 1 } }) })
      const id = fresh()
      await host.queue(id)
      const run = await host.reached(id, 'Completed')
      expect(run.Items[0]).toMatchObject({ Attempt: 1, Data: { attempt: 1 } })
      expect(run.Attempts).toHaveLength(2)
    })

    describe('the deadline of a run', () => {
      const hasPassed = async (host: Fixture, id: string): Promise<void> => {
        const { DeadlineAt } = (await host.run(id)) as { DeadlineAt?: string }
        await until(() => Date.now() > Date.parse(DeadlineAt ?? ''))
      }

      it('a run that waits beyond its deadline fails as deadline_exceeded, and gets a new deadline when it is resumed', async () => {
        let isReady = false
        const waiting = (step: Step) => (isReady ? step.complete() : step.waitFor(3_600_000))
        const host = await start({ processes: trial(waiting, { deadlineSeconds: 3 }) })
        const id = fresh()
        await host.queue(id)
        expect(await host.reached(id, 'Failed')).toMatchObject({
          ErrorClass: 'deadline_exceeded',
          LastError: expect.stringContaining('the step called waitFor'),
        })
        isReady = true
        expect((await act(host, id, 'resume')).status).toBe(202)
        await host.reached(id, 'Completed')
      })

      it('a step in flight at the deadline ends normally; the run fails before its next step', async () => {
        let calls = 0
        const id = fresh()
        const slow = async (step: Step) => {
          calls += 1
          await hasPassed(fixture as Fixture, id)
          step.complete(calls)
        }
        const host = await start({ processes: trial(slow, { deadlineSeconds: 2 }) })
        await host.queue(id)
        const run = await host.reached(id, 'Failed')
        expect(run).toMatchObject({ ErrorClass: 'deadline_exceeded', StepName: 'second' })
        expect(run.Items).toMatchObject([{ StepName: 'first', Status: 'Completed', Data: 1 }])
        await act(host, id, 'resume')
        await host.reached(id, 'Completed')
        expect(calls).toBe(1)
      })

      it('a run fails at its deadline even while its process waits for the internet or is paused', async () => {
        await using internet = await startFakeInternet()
        internet.isReachable = false
        const host = await start({
          processes: trial((step) => step.complete(), {
            requireInternet: true,
            deadlineSeconds: 0.3,
          }),
          env: { INTERNET_PROBES: internet.probe },
          timing: { onlineIntervalMs: 30, offlineIntervalMs: 30, confirmMs: 10 },
        })
        const [offline, paused] = [fresh(), fresh()]
        await host.queue(offline)
        expect(await host.reached(offline, 'Failed')).toMatchObject({
          ErrorClass: 'deadline_exceeded',
          Attempts: [],
        })
        await host.call('/processes/Trial/pause', { method: 'POST' })
        internet.isReachable = true
        await host.queue(paused)
        expect((await host.reached(paused, 'Failed')).ErrorClass).toBe('deadline_exceeded')
        await host.call('/processes/Trial/resume', { method: 'POST' })
      })
    })

    describe('a step that misbehaves', () => {
      it('a step that returns without a call and without a status fails as status_not_set', async () => {
        const host = await start({ processes: trial(() => {}) })
        const id = fresh()
        await host.queue(id)
        expect(await host.reached(id, 'Failed')).toMatchObject({ ErrorClass: 'status_not_set' })
      })

      it('a step that throws is retried until it has no attempt left', async () => {
        const retry = { baseMs: 1, maxAttempts: 3 }
        const host = await start({
          processes: trial(() => Promise.reject(new Error('a bug')), { retry }),
        })
        const id = fresh()
        await host.queue(id)
        const run = await host.reached(id, 'Failed')
        expect(run).toMatchObject({ ErrorClass: 'step_threw', LastError: 'Error: a bug' })
        expect(run.Attempts).toHaveLength(3)
      })

      it('a step that never ends and ignores its abort signal fails with step_timeout at its time limit', async () => {
        const host = await start({
          processes: trial(() => new Promise(() => {}), {
            stepTimeoutSeconds: 0.1,
            retry: { maxAttempts: 1 },
          }),
        })
        const id = fresh()
        await host.queue(id)
        expect(await host.reached(id, 'Failed')).toMatchObject({ ErrorClass: 'step_timeout' })
      })

      it('the cancellation of a run aborts its call in flight, and no outcome of the call is recorded', async () => {
        const host = await start()
        const closed = Promise.withResolvers<void>()
        host.target.on('/order', (_, response) => {
          response.on('close', () => closed.resolve())
        })
        const id = fresh()
        await host.queue(id)
        await until(() => host.target.callsTo('/order').length === 1)
        const cancelled = await act(host, id, 'cancel')
        expect(await cancelled.json()).toMatchObject({ Status: 'Cancelled' })
        await closed.promise
        expect((await host.run(id)).Status).toBe('Cancelled')
        expect((await act(host, id, 'cancel')).status).toBe(409)
      })
    })

    describe('a coordinator after the death of a worker or the loss of a message', () => {
      it('the run of a dead worker is recovered when the lease of that worker expires', async () => {
        await using source = await backends.openSource({ leaseMs: 1_000, sweepMs: 100 })
        const id = fresh()
        const outline = { name: 'OrderProcess', steps: ['order'] as [string, ...string[]] }
        await source.queue(outline, [{ TransactionID: id, InitialData: id }])
        const run = { Process: 'OrderProcess', TransactionID: id, ReplayID: 0 }
        await source.claim({ ...run, version: 0, step: 'order', isFirst: true, owner: 'dead' })
        const host = await start({ source, timing: { renewMs: 200 } })
        const completed = await host.reached(id, 'Completed')
        expect(completed.Attempts.map(({ Outcome }) => Outcome)).toEqual([
          'in_doubt',
          'completed',
          'completed',
          'completed',
        ])
        await host[Symbol.asyncDispose]()
        fixture = undefined
      })

      it('a step message that was lost before it reached the broker is published again by the sweeper', async () => {
        const step = dispatch === 'inline' ? 'order' : 'report'
        let isLost = false
        const host = await start({
          times: { sweepMs: 100 },
          wrapBus: (bus): MessageBus => ({
            ...bus,
            publish: (message) => {
              const isFirst = message.routingKey === `OrderProcess.${step}` && !isLost
              if (!isFirst) return bus.publish(message)
              isLost = true
              return Promise.reject(new Error('the process died here'))
            },
          }),
        })
        const id = fresh()
        await host.queue(id)
        await host.reached(id, 'Completed')
        // With `dispatch: 'inline'`, the first run starts when it is queued, so no step message is published for it.
        // The first step of a replay is started by a step message.
        if (dispatch === 'inline') {
          await host.call(`/processes/OrderProcess/transactions/${id}/replays`, { method: 'POST' })
          await host.reached(id, 'Completed', 1)
        }
        const runs = dispatch === 'inline' ? 2 : 1
        expect(isLost).toBe(true)
        expect(host.target.callsTo('/order')).toHaveLength(runs)
        expect(host.target.callsTo('/report')).toHaveLength(runs)
      })

      it('a worker ignores a step message that is a duplicate, is outdated, or names a finished run', async () => {
        const host = await start()
        const id = fresh()
        await host.queue(id)
        await host.reached(id, 'Completed')
        for (const [step, version] of [
          ['order', 0],
          ['order', 0],
          ['report', 2],
          ['csv', 4],
          ['csv', 6],
        ] as const)
          await host.bus.publish({
            exchange: STEPS_EXCHANGE,
            routingKey: stepRoutingKey('OrderProcess', step),
            messageId: crypto.randomUUID(),
            type: 'step',
            body: {
              v: 1,
              Process: 'OrderProcess',
              TransactionID: id,
              ReplayID: 0,
              Step: step,
              Version: version,
            },
            mandatory: true,
          })
        const next = fresh()
        await host.queue(next)
        await host.reached(next, 'Completed')
        // Each claim and each recorded outcome adds 1 to the version of the run. With `dispatch: 'inline'`, only the
        // first step is claimed.
        expect((await host.run(id)).Version).toBe(dispatch === 'inline' ? 4 : 6)
        expect(host.target.callsTo('/order')).toHaveLength(2)
      })

      it('a coordinator that shuts down finishes the call in flight, and the next coordinator continues the run', async () => {
        await using source = await backends.openSource()
        await using bus = await backends.openBus()
        await bus.ready(AbortSignal.timeout(60_000))
        const first = await start({ source, bus })
        const release = Promise.withResolvers<void>()
        first.target.on('/order', async () => (await release.promise, true))
        const id = fresh()
        await first.queue(id)
        await until(() => first.target.callsTo('/order').length === 1)
        const shutdown = first[Symbol.asyncDispose]()
        fixture = undefined
        release.resolve()
        await shutdown
        const second = await start({ source, bus })
        await second.reached(id, 'Completed')
        const made = [...first.target.calls, ...second.target.calls].map(({ path }) => path)
        expect(made).toEqual(['/order', '/report'])
        await second[Symbol.asyncDispose]()
        fixture = undefined
      })

      it('/integrity reports no violation after workers have died and messages were lost', async () => {
        const host = await start()
        const report = (await (await host.call('/integrity')).json()) as {
          queues: { step: string }[]
        }
        expect(report).toMatchObject({ ok: true, deadLetters: { OrderProcess: 0 } })
        expect(report.queues.map(({ step }) => step)).toEqual(['order', 'report', 'csv'])
      })
    })

    describe('a coordinator without access to the internet', () => {
      it('while the internet is unreachable, the coordinator starts no step, and it logs the beginning and the end of this pause', async () => {
        await using internet = await startFakeInternet()
        const host = await start({
          env: { INTERNET_PROBES: internet.probe },
          timing: { onlineIntervalMs: 30, offlineIntervalMs: 30, confirmMs: 10, rampMs: 50 },
        })
        const before = fresh()
        await host.queue(before)
        await host.reached(before, 'Completed')
        const messages = () => host.log.map(({ msg }) => msg)
        const count = (message: string) => messages().filter((msg) => msg === message).length

        internet.isReachable = false
        await until(() => messages().includes('coordinator cancellation complete'))
        const during = fresh()
        expect((await host.queue(during)).status).toBe(202)
        await sleep(300)
        expect(await host.run(during)).toMatchObject({ Status: 'Queued', Attempt: 0 })

        internet.isReachable = true
        const run = await host.reached(during, 'Completed')
        expect(run.Attempts.map(({ Attempt }) => Attempt)).toEqual([1, 1, 1])
        expect(count('coordinator cancellation requested')).toBe(1)
        expect(count('coordinator starting')).toBe(2)
        expect(messages().indexOf('coordinator cancellation requested')).toBeLessThan(
          messages().indexOf('coordinator cancellation complete'),
        )
      })

      it('no attempt is counted, no call is repeated and no message is dead-lettered in ten internet outages under load', async () => {
        await using internet = await startFakeInternet()
        const host = await start({
          env: { INTERNET_PROBES: internet.probe },
          timing: { onlineIntervalMs: 10, offlineIntervalMs: 10, confirmMs: 5, rampMs: 20 },
        })
        host.target.on('/order', async () => (await sleep(15), true))
        const ids = Array.from({ length: 200 }, fresh)
        const queued = Promise.all(ids.map((id) => host.queue(id)))
        const count = (message: string) => host.log.filter(({ msg }) => msg === message).length
        await until(() => count('coordinator starting') === 1)
        for (let flap = 1; flap <= 10; flap += 1) {
          internet.isReachable = false
          await until(() => count('coordinator cancellation complete') >= flap)
          internet.isReachable = true
          await until(() => count('coordinator starting') > flap)
        }
        await queued
        for (const id of ids) {
          const run = await host.reached(id, 'Completed')
          expect(run.Attempts.map(({ Attempt }) => Attempt)).toEqual([1, 1, 1])
        }
        expect(host.target.calls).toHaveLength(400)
        const report = await (await host.call('/integrity')).json()
        expect(report).toMatchObject({ ok: true, deadLetters: { OrderProcess: 0 } })
      })

      it('an attempt is not counted if its call failed while the internet was unreachable', async () => {
        await using internet = await startFakeInternet()
        let isUnreachable = true
        const host = await start({
          env: { INTERNET_PROBES: internet.probe },
          // Only the failed call can trigger the probe during this test, because the probe interval is a minute.
          timing: { onlineIntervalMs: 60_000, offlineIntervalMs: 30, confirmMs: 10, rampMs: 10 },
        })
        host.target.on('/order', async (request) => {
          if (!isUnreachable) return true
          internet.isReachable = false
          request.socket.destroy()
          return undefined
        })
        const id = fresh()
        await host.queue(id)
        await until(() => host.log.some(({ msg }) => msg === 'coordinator cancellation complete'))
        // The attempt is stored because its call was sent, but it does not count against `maxAttempts`.
        expect(await host.run(id)).toMatchObject({
          Attempt: 0,
          Status: 'Queued',
          Attempts: [{ Outcome: 'no_answer' }],
        })
        isUnreachable = false
        internet.isReachable = true
        const run = await host.reached(id, 'Completed')
        expect(run.Attempts.map(({ Attempt }) => Attempt)).toEqual([1, 1, 1, 1])
      })
    })

    it('queueing a transaction again is accepted with equal initial data, and rejected as a conflict with other initial data', async () => {
      const host = await start()
      const id = fresh()
      const queue = (text: string) =>
        host.call('/processes/OrderProcess/transactions', {
          method: 'POST',
          headers: { 'Content-Type': 'application/json' },
          body: `{"TransactionID":"${id}","InitialData":${text}}`,
        })
      const statuses = []
      for (const text of [
        '{"__proto__":{"a":1}}',
        '{"__proto__":{"a":1}}',
        '{"__proto__":{"a":2}}',
      ])
        statuses.push((await queue(text)).status)
      expect(statuses).toEqual([202, 200, 409])
    })

    it.each([
      [
        'numbers that a double holds',
        '{"a":[9007199254740991,-9007199254740992,0.1,1.5e300,5e-324,1e23]}',
      ],
      ['minus zero, which is stored as zero', '[-0,-0.0]'],
      ['emoji', '{"😀":"👩‍👩‍👧‍👦 \\ud83d\\ude00"}'],
      ['control characters', '["\\u0001\\u001f\\u2028\\n\\t"]'],
      ['member names like __proto__', '{"__proto__":{"a":1},"constructor":2,"":3}'],
      [
        'text that looks like JSON escapes or SQL',
        '["null","1e400","12345678901234567890","\\\\u0000"]',
      ],
    ])(
      'the coordinator returns initial data unchanged, and recognises equal data that is queued again: %s',
      async (_, text) => {
        const host = await start({ processes: trial((step) => step.complete(step.initialData)) })
        const id = fresh()
        const send = () =>
          host.call('/processes/Trial/transactions', {
            method: 'POST',
            headers: { 'Content-Type': 'application/json' },
            body: `{"TransactionID":"${id}","InitialData":${text}}`,
          })
        expect((await send()).status).toBe(202)
        const run = await host.reached(id, 'Completed')
        const sent = JSON.parse(text.replaceAll('-0', '0')) as unknown
        expect([run.InitialData, run.Items[0]?.Data]).toEqual([sent, sent])
        expect((await send()).status).toBe(200)
      },
    )

    it.each(['.', '..'])(
      'the coordinator rejects the transaction id %j, which cannot be a URL path segment',
      async (id) => {
        const host = await start()
        expect((await host.queue(id)).status).toBe(400)
      },
    )

    it('a paused business process runs no step until it is resumed, even if the coordinator restarts', async () => {
      const first = await start()
      const paused = await first.call('/processes/OrderProcess/pause', { method: 'POST' })
      expect(await paused.json()).toMatchObject({ Paused: true })
      await first[Symbol.asyncDispose]()
      const host = await start()
      const id = fresh()
      expect((await host.queue(id)).status).toBe(202)
      await sleep(300)
      expect(await host.run(id)).toMatchObject({ Status: 'Queued' })
      const resumed = await host.call('/processes/OrderProcess/resume', { method: 'POST' })
      expect(await resumed.json()).toMatchObject({ Paused: false })
      await host.reached(id, 'Completed')
    })

    it('/events streams every transition of a run, and after a reconnect the transitions since the Last-Event-ID', async () => {
      const host = await start()
      const id = fresh()
      const first = await watchEvents(host, id)
      await host.queue(id)
      await until(() => first.seen.some(({ Status }) => Status === 'Completed'))
      expect(first.seen.map(({ Status, StepName }) => `${Status} ${StepName}`)).toEqual([
        'Queued order',
        'Running order',
        'Running report',
        'Running csv',
        'Completed csv',
      ])
      first.stop()
      const missed = await watchEvents(host, id, { lastId: first.ids[1] })
      await until(() => missed.seen.some(({ Status }) => Status === 'Completed'))
      // The stream also repeats the events of the 1,000 ms before the event of Last-Event-ID, because another replica
      // may have sent them in a different order.
      expect(missed.ids.filter((eventId) => eventId !== first.ids[0])).toEqual(first.ids.slice(2))
      const others = await watchEvents(host, id, {
        lastId: first.ids[1],
        query: '?process=OrderProcess',
      })
      await until(() => others.seen.some(({ Status }) => Status === 'Completed'))
      expect(others.ids).toEqual(missed.ids)
      const newest = await watchEvents(host, id, {
        lastId: first.ids[1],
        query: '?coalesce=true',
      })
      await until(() => newest.seen.some(({ Status }) => Status === 'Completed'))
      expect(newest.ids).toEqual(first.ids.slice(-1))
      expect(newest.seen).toMatchObject([{ First: { Version: expect.any(Number) } }])
      const lost = await watchEvents(host, id, { lastId: 'an id of long ago' })
      await until(() => lost.isReset())
      await host[Symbol.asyncDispose]()
      fixture = undefined
      expect([await missed.isWholeAtEnd, await lost.isWholeAtEnd]).toEqual([true, true])
    })
  })
}
