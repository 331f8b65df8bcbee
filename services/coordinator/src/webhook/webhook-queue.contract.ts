import { WEBHOOK_PROCESS, WEBHOOK_STEP } from '@integration-host/shared/contracts/events'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { anAct } from '../../test-support/act.ts'
import { contractTimes, type MovableSource } from '../../test-support/movable-source.ts'
import { advance, type StepOutcome } from '../run/progress.ts'
import { defaultRetryPolicy } from '../run/retry-policy.ts'
import type { ClaimedRun, Run } from '../run/run.ts'
import { isOver } from '../run/status.ts'
import type { Claim, NewWebhook, ProcessOutline, WebhooksOf } from '../run/transaction-source.ts'
import { dropWebhooks } from './drop-webhooks.ts'
import { webhookBacklog } from './webhook-backlog.ts'

const process: ProcessOutline = { name: 'OrderProcess', steps: ['order'] }
const done: StepOutcome = { kind: 'completed', response: null, data: null, endsRun: false }
const failed: StepOutcome = { kind: 'failed', errorClass: 'no', error: 'no', response: null }
const doubtful: StepOutcome = {
  kind: 'retry',
  errorClass: 'http_500',
  error: 'no',
  response: null,
  retryAfterMs: 0,
  isInDoubt: true,
}

const webhook = (id: string, Realm: string | null = 'r1', Receiver = 'one'): NewWebhook => ({
  Receiver,
  Realm,
  Lane: '7',
  TransactionID: id,
  InitialData: { MessageID: id },
  At: '2026-11-20T00:00:00.000Z',
})

/** One webhook for the end of a run, and one for each version in which a run is in doubt. */
const webhooksOf: WebhooksOf = ({ Process, TransactionID, Status, InDoubt, Version }) =>
  Process === process.name && (InDoubt || isOver(Status))
    ? [
        {
          Receiver: 'one',
          Lane: '7',
          TransactionID: `${TransactionID} ${Status} ${Version}`,
          InitialData: { InDoubt },
        },
      ]
    : []

/** Tests stored webhooks; both the memory and the PostgreSQL source must pass these tests. */
export function webhooksContract(
  name: string,
  open: (webhooksOf: WebhooksOf) => Promise<MovableSource>,
): void {
  describe(`${name} as a store of webhooks`, () => {
    let source: MovableSource
    beforeEach(async () => {
      source = await open(webhooksOf)
    })
    afterEach(() => source[Symbol.asyncDispose]())

    const queue = async (id: string, Realm?: string): Promise<Run> => {
      const transaction = { TransactionID: id, InitialData: id, ...(Realm && { Realm }) }
      const [result] = await source.queue(process, [transaction])
      if (result?.run === undefined || result.outcome === 'conflict') throw new Error('not queued')
      return result.run
    }
    const claim = async (run: ClaimedRun): Promise<Claim> => {
      const { Version: version, StepName: step } = run
      const result = await source.claim({ ...run, version, step, isFirst: true, owner: 'worker' })
      if (result.kind !== 'claimed') throw new Error(`not claimed: ${result.kind}`)
      return result.claim
    }
    const record = async (run: ClaimedRun, outcome: StepOutcome): Promise<ClaimedRun> => {
      const claimed = await claim(run)
      const steps = run.Process === WEBHOOK_PROCESS ? [WEBHOOK_STEP] : process.steps
      const options = { steps, policy: defaultRetryPolicy, random: 0 }
      const recorded = await source.record(claimed.lease, advance(claimed.run, outcome, options))
      return { ...claimed.run, ...recorded }
    }
    /** Starts webhooks until no more can be started. Returns the ids of their runs. */
    const start = async (): Promise<Run[]> => {
      const runs: Run[] = []
      for (let hasMore = true; hasMore;) {
        const started = await source.startWebhooks(500)
        runs.push(...started.runs)
        hasMore = started.hasMore
      }
      return runs
    }
    const idsOf = (runs: readonly Run[]) =>
      runs.map(({ TransactionID }) => TransactionID).toSorted()
    /** Delivers all stored webhooks. Returns their ids in the order of delivery. */
    const deliverAll = async (): Promise<string[]> => {
      const ids: string[] = []
      for (let runs = await start(); runs.length > 0; runs = await start())
        for (const run of runs) {
          await record(run, done)
          ids.push(run.TransactionID)
        }
      return ids
    }

    it('a recorded outcome stores the webhooks of its transition, with the realm of the run and the time', async () => {
      await record(await queue('good', 'r1'), done)
      const bad = await record(await queue('bad'), failed)
      const runs = await start()
      expect(idsOf(runs)).toEqual(['bad Failed 2', 'good Completed 2'])
      const [first] = runs.filter(({ TransactionID }) => TransactionID === 'bad Failed 2')
      expect(first).toMatchObject({
        Process: WEBHOOK_PROCESS,
        StepName: WEBHOOK_STEP,
        Status: 'Queued',
        Realm: null,
        InitialData: { InDoubt: false },
      })
      const { At = '' } = (first?.InitialData ?? {}) as { At?: string }
      expect(new Date(At).toISOString()).toBe(bad.UpdatedAt)
      expect(runs.find(({ Realm }) => Realm === 'r1')?.TransactionID).toBe('good Completed 2')
    })

    it('an outcome that is rejected because the lease was lost stores no webhook', async () => {
      const claimed = await claim(await queue('late'))
      await source.operate('cancel', process, 'late', null, anAct)
      const options = { steps: process.steps, policy: defaultRetryPolicy, random: 0 }
      expect(await source.record(claimed.lease, advance(claimed.run, done, options))).toBeNull()
      expect(await deliverAll()).toEqual(['late Cancelled 2'])
    })

    it('every transition that ends a run or leaves the run in doubt stores its webhooks, whatever causes the transition', async () => {
      await record(await queue('unsure'), doubtful)
      const unknown = await queue('unknown step')
      await source.failRun(unknown, unknown.Version, 'step_unknown', 'gone')
      await source.queue({ ...process, deadlineMs: 1 }, [
        { TransactionID: 'too late', InitialData: 1 },
      ])
      await source.advance(1)
      expect(await source.failPastDeadline(10)).toHaveLength(1)
      const taken = await queue('taken over')
      await claim(taken)
      await claim(await queue('recovered'))
      await source.advance(contractTimes.leaseMs)
      await claim(taken)
      await source.recoverExpiredLeases(10)
      expect((await deliverAll()).toSorted()).toEqual([
        'recovered Running 2',
        'taken over Running 2',
        'too late Failed 1',
        'unknown step Failed 1',
        'unsure Retrying 2',
      ])
    })

    it.each([
      ['completed', done],
      ['failed', failed],
    ] as const)(
      'a webhook gets a run when the earlier webhooks of its receiver and realm are %s',
      async (_, outcome) => {
        const ids = ['1', '2', '3']
        await source.addWebhooks(ids.map((id) => webhook(id)))
        for (const id of ids) {
          const [run, ...others] = await start()
          expect([run?.TransactionID, others]).toEqual([id, []])
          expect(await start()).toEqual([])
          await record(run as Run, outcome)
        }
        expect(await start()).toEqual([])
        expect(await webhookBacklog(source)).toEqual([])
      },
    )

    it('a webhook does not wait for webhooks of other receivers or realms', async () => {
      await source.addWebhooks([
        webhook('a', 'r1'),
        webhook('b', 'r1'),
        webhook('c', 'r2'),
        webhook('d', 'r1', 'two'),
        webhook('e', null),
        webhook('f', null),
      ])
      expect(idsOf(await start())).toEqual(['a', 'c', 'd', 'e'])
    })

    it('a webhook that is stored twice is delivered once, even if the second copy comes after the delivery', async () => {
      await source.addWebhooks([webhook('1'), webhook('2')])
      await source.addWebhooks([webhook('1'), webhook('3')])
      expect(await deliverAll()).toEqual(['1', '2', '3'])
      await source.addWebhooks([webhook('2'), webhook('4')])
      expect(await deliverAll()).toEqual(['4'])
    })

    it('a cancelled webhook does not delay the other webhooks', async () => {
      await source.addWebhooks([webhook('1'), webhook('2')])
      await start()
      await source.operate('cancel', { name: WEBHOOK_PROCESS }, '1', null, anAct)
      expect(await deliverAll()).toEqual(['2'])
    })

    it('the webhooks of a company can be dropped, except those about its removal, which count as no unfinished run', async () => {
      await source.addWebhooks([webhook('1'), webhook('2'), webhook('3', 'r2'), webhook('4', null)])
      await source.addWebhooks([
        webhook('credential.removed-5', 'r1', 'two'),
        webhook('6', 'r1', 'two'),
      ])
      expect(idsOf(await start())).toEqual(['1', '3', '4', 'credential.removed-5'])
      expect(await dropWebhooks(source, 'r1')).toEqual(['1'])
      await source.operate('cancel', { name: WEBHOOK_PROCESS }, '1', null, anAct)
      expect(await dropWebhooks(source, 'r1')).toEqual([])
      const page = await source.erasable({ Realm: 'r1', Process: null }, { after: null, limit: 9 })
      expect(page.runs.map(({ TransactionID }) => TransactionID)).toEqual(['1'])
      expect(page.notEnded).toBe(0)
      expect(await start()).toEqual([])
      expect((await webhookBacklog(source)).map(({ waiting }) => waiting)).toEqual([2, 1])
    })

    it('several concurrent replicas start each webhook once and in order', async () => {
      const runs = await Promise.all(
        Array.from({ length: 200 }, (_, n) => queue(`run ${n}`, `r${n % 20}`)),
      )
      await Promise.all(runs.map((run) => record(run, done)))
      const started: Run[] = []
      while (started.length < 200) {
        const replicas = await Promise.all([1, 2, 3].map(() => source.startWebhooks(500)))
        const batch = replicas.flatMap((replica) => replica.runs)
        expect(new Set(batch.map(({ Realm }) => Realm)).size).toBe(batch.length)
        await Promise.all(batch.map((run) => record(run, done)))
        started.push(...batch)
      }
      expect(new Set(idsOf(started)).size).toBe(200)
    })

    it('the webhook backlog has the number of undelivered webhooks of each receiver and the age of its oldest webhook', async () => {
      await source.addWebhooks([webhook('1'), webhook('2'), webhook('3', 'r1', 'two')])
      await start()
      const backlog = await webhookBacklog(source)
      const waiting = new Map(backlog.map((one) => [one.receiver, one.waiting]))
      expect(Object.fromEntries(waiting)).toEqual({ one: 2, two: 1 })
      const ageMs = Date.now() - Date.parse('2026-11-20T00:00:00.000Z')
      for (const { oldestMs } of backlog) expect(Math.abs(oldestMs - ageMs)).toBeLessThan(60_000)
    })
  })
}
