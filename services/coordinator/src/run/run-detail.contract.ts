import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { anAct } from '../../test-support/act.ts'
import type { StepCall } from './progress.ts'
import { advance, type StepOutcome } from './progress.ts'
import { defaultRetryPolicy } from './retry-policy.ts'
import { type Run, runKey } from './run.ts'
import type { Claim, ProcessOutline, TransactionSource } from './transaction-source.ts'

const process: ProcessOutline = { name: 'OrderProcess', steps: ['order', 'report'] }
const options = { steps: process.steps, policy: defaultRetryPolicy, random: 0 }
const call: StepCall = {
  method: 'POST',
  url: 'https://target/orders',
  traceId: '4bf92f3577b34da6a3ce929d0e0e4736',
  responseId: 'tid-1',
}
const done: StepOutcome = {
  kind: 'completed',
  response: { status: 200, body: '<b>{"a":1}</b>' },
  data: { a: 1 },
  endsRun: false,
}
const busy = {
  kind: 'retry',
  errorClass: 'http_503',
  error: 'GET x responded with 503',
  response: { status: 503, body: 'busy' },
  retryAfterMs: 0,
} satisfies StepOutcome

/** Tests the reading of one transaction; both the memory and the PostgreSQL source must pass these tests. */
export function runDetailContract(name: string, open: () => Promise<TransactionSource>): void {
  describe(`${name} as a reader of one transaction`, () => {
    let source: TransactionSource
    beforeEach(async () => {
      source = await open()
    })
    afterEach(() => source[Symbol.asyncDispose]())

    const queue = async (id: string, Realm?: string): Promise<Run> => {
      const transaction = { TransactionID: id, InitialData: id, ...(Realm && { Realm }) }
      const [result] = await source.queue(process, [transaction])
      if (result?.run === undefined || result.outcome === 'conflict') throw new Error('not queued')
      return result.run
    }
    const claim = async (run: Run): Promise<Claim> => {
      const { Version: version, StepName: step } = run
      const isFirst = step === 'order'
      const owner = 'worker-1'
      const result = await source.claim({ ...runKey(run), step, isFirst, version, owner })
      if (result.kind !== 'claimed') throw new Error(`not claimed: ${result.kind}`)
      return result.claim
    }
    const attempt = async (run: Run, outcome: StepOutcome, sent?: StepCall): Promise<Run> => {
      const { lease, run: claimed } = await claim(run)
      const transition = advance(claimed, outcome, options)
      const state = await source.record(lease, { ...transition, ...(sent && { call: sent }) })
      if (state === null) throw new Error('not recorded')
      return { ...run, ...state }
    }

    it('an attempt of a step shows the request of its last call, its trace and the id of the response', async () => {
      const run = await attempt(await queue('1'), busy, { ...call, responseId: null })
      await attempt(await attempt(run, done, call), busy)
      const request = { Method: 'POST', Url: 'https://target/orders' }
      const { traceId: TraceId } = call
      expect((await source.get(process.name, '1', null))?.attempts).toMatchObject([
        { Outcome: 'http_503', Request: request, TraceId, ResponseId: null },
        { Outcome: 'completed', Request: request, TraceId, ResponseId: 'tid-1' },
        { Outcome: 'http_503', Request: null, TraceId: null, ResponseId: null },
      ])
    })

    it('only the newest attempts of a run are returned, oldest first, with the number of all attempts', async () => {
      let run = await queue('2')
      for (const error of ['one', 'two', 'three']) run = await attempt(run, { ...busy, error })
      const errors = async (attempts?: number) => {
        const parts = attempts === undefined ? undefined : { attempts }
        const found = await source.get(process.name, '2', null, parts)
        return [found?.attempts.map(({ Error }) => Error), found?.attemptCount]
      }
      expect(await errors(2)).toEqual([['two', 'three'], 3])
      expect(await errors(0)).toEqual([[], 3])
      expect(await errors()).toEqual([['one', 'two', 'three'], 3])
    })

    it('the items of a run have neither response body nor data if bodies are not requested', async () => {
      await attempt(await queue('3'), done)
      const item = { StepName: 'order', Status: 'Completed', ResponseStatus: 200 }
      const found = await source.get(process.name, '3', null, { bodies: false })
      expect(found?.items).toMatchObject([{ ...item, ResponseBody: null, Data: null }])
      const whole = await source.get(process.name, '3', null)
      expect(whole?.items).toMatchObject([{ ...item, Data: { a: 1 } }])
    })

    it('a run shows the lease of its worker while an attempt is in flight, and no lease afterwards', async () => {
      const none = { LeaseOwner: null, LeaseUntil: null, StartedAt: null }
      const leaseOf = async () => (await source.get(process.name, '4', null))?.lease
      const run = await queue('4')
      expect(await leaseOf()).toEqual(none)
      const { lease } = await claim(run)
      const shown = await leaseOf()
      expect(shown).toMatchObject({ LeaseOwner: 'worker-1', StartedAt: lease.startedAt })
      const until = shown?.LeaseUntil ?? ''
      expect(until).toBe(new Date(until).toISOString())
      expect(Date.parse(until)).toBeGreaterThan(Date.parse(lease.startedAt))
      await source.record(lease, advance({ ...run, Attempt: 1 }, done, options))
      expect(await leaseOf()).toEqual(none)
    })

    it('the runs of a transaction are listed in pages, the latest first', async () => {
      await queue('5', '42')
      await queue('other')
      for (let replay = 0; replay < 2; replay += 1) {
        await source.operate('cancel', process, '5', null, anAct)
        await source.replay(process, '5', { fromStep: null, latest: null }, anAct)
      }
      const runs = await source.runsOf(process.name, ['5'], { limit: 10 })
      expect(runs).toMatchObject([
        { ReplayID: 2, Status: 'Queued', Realm: '42', CompletedAt: null },
        { ReplayID: 1, Status: 'Cancelled', Realm: '42' },
        { ReplayID: 0, Status: 'Cancelled', Realm: '42' },
      ])
      const detail = await source.get(process.name, '5', 1)
      expect(runs[1]).toMatchObject({
        CreatedAt: detail?.run.CreatedAt,
        UpdatedAt: detail?.run.UpdatedAt,
        CompletedAt: detail?.run.CompletedAt,
      })
      expect(runs[0]).not.toHaveProperty('InitialData')
      const page = await source.runsOf(process.name, ['5'], { before: 2, limit: 1 })
      expect(page.map(({ ReplayID }) => ReplayID)).toEqual([1])
      expect(await source.runsOf(process.name, ['unknown'], { limit: 10 })).toEqual([])
    })

    it('the stored response of a step is returned unchanged, with the realm of its run', async () => {
      await attempt(await queue('6', '42'), done)
      const read = (id: string, replay: number | null, step: string) =>
        source.get(process.name, id, replay, { attempts: 0, bodies: { step } })
      expect(await read('6', null, 'order')).toMatchObject({
        run: { ReplayID: 0, Realm: '42' },
        items: [{ StepName: 'order', ResponseBody: '<b>{"a":1}</b>' }],
        attempts: [],
      })
      expect(await read('6', 0, 'report')).toMatchObject({ run: { ReplayID: 0 }, items: [] })
      expect(await read('6', 1, 'order')).toBeNull()
      expect(await read('unknown', null, 'order')).toBeNull()
    })
  })
}
