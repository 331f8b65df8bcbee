import { createLogger } from '@integration-host/shared/observability/logger'
import { type Random, randomOf } from '@integration-host/shared/test-support/random'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { contractTimes, type MovableSource } from '../../test-support/movable-source.ts'
import { processOf } from '../../test-support/process-of.ts'
import { stepDeps } from '../../test-support/step-outcome.ts'
import { advance, type StepOutcome } from '../run/progress.ts'
import { defaultRetryPolicy } from '../run/retry-policy.ts'
import type { Run } from '../run/run.ts'
import { isOver } from '../run/status.ts'
import type { CallOutcome, CallRequest } from '../step/http-call.ts'
import { runStep } from '../step/run-step.ts'
import type { Step } from '../step/step.ts'
import { createEntryKeeper } from './entry-keeper.ts'
import { createMarks } from './marks.ts'
import type { WrittenObject } from './written-objects.ts'
import { readEntries, recordedEntry } from './book-entry.ts'

/** How long a new invoice is not visible to queries, and how late a call of a killed worker may still be executed. */
const VISIBLE_MS = 60_000
const LATE_MS = 100_000
const WAIT_MS = 180_000

interface Invoice {
  readonly Id: string
  readonly SyncToken: string
  readonly DocNumber: string
  readonly MetaData: { readonly CreateTime: string }
  readonly visibleAt: number
}

/** The points at which an attempt is killed, and the other ways in which its call goes wrong. */
const TROUBLES = [
  'none',
  'killed at the start',
  'killed before the call',
  'killed, call executed',
  'killed, call executed later',
  'killed after the response',
  'response lost',
  'refused',
] as const
type Trouble = (typeof TROUBLES)[number]

const create = (onExisting: 'fail' | 'adopt', number = 'A-1') =>
  processOf('Export', {
    steps: {
      create: (step: Step) =>
        step.createOnce(
          'Invoice',
          { Line: [] },
          { mark: { field: 'DocNumber', value: number }, onExisting },
        ),
    },
  })

/**
 * Tests `createOnce` on a source whose clock moves, with books that ignore the idempotency key of a call. All 500 seeds run
 * with `TEST_FAULTS=faults npm test -- transaction-source -t createOnce`.
 */
export function createOnceContract(
  name: string,
  open: () => Promise<MovableSource>,
  seeds: number,
): void {
  describe(`createOnce on ${name}`, () => {
    let source: MovableSource
    let movedMs = 0
    let invoices: Invoice[] = []
    let pending: { readonly at: number; readonly number: string }[] = []
    let keptNumber = (given: string): string => given
    const log: string[] = []
    const logger = createLogger('test', 'warn', { write: (text) => void log.push(text) })
    beforeEach(async () => {
      log.length = 0
      source = await open()
      movedMs = 0
      invoices = []
      pending = []
      keptNumber = (given) => given
    })
    afterEach(() => source[Symbol.asyncDispose]())

    const now = (): number => Date.now() + movedMs
    const store = (number: string, createdAt = now()): Invoice => {
      const invoice = {
        Id: `${invoices.length + 1}`,
        SyncToken: '0',
        DocNumber: keptNumber(number),
        MetaData: { CreateTime: new Date(createdAt).toISOString() },
        visibleAt: createdAt + VISIBLE_MS,
      }
      invoices.push(invoice)
      return invoice
    }
    const pass = async (ms: number): Promise<void> => {
      movedMs += ms
      await source.advance(ms)
      for (const call of pending.filter(({ at }) => at <= now())) store(call.number)
      pending = pending.filter(({ at }) => at > now())
    }
    const answered = (document: object, status = 200): CallOutcome => ({
      kind: 'answered',
      status,
      headers: [],
      body: JSON.stringify(document),
      retryAfter: null,
      responseId: null,
    })
    const found = (list: readonly Invoice[]): object[] =>
      list.map(({ visibleAt: _visibleAt, ...invoice }) => invoice)
    const [never, killed] = [new Promise<never>(() => {}), Symbol('killed')]
    /** Counts the calls that create an invoice. */
    let sends = 0

    /** Runs an attempt of a run, which ends as `trouble` says. Returns the outcome, or `null` without one. */
    async function attempt(
      run: Run,
      process: ReturnType<typeof create>,
      trouble: Trouble,
    ): Promise<StepOutcome | null> {
      const result = await source.claim({
        ...run,
        version: run.Version,
        step: 'create',
        isFirst: true,
        owner: 'w',
      })
      if (result.kind !== 'claimed') return null
      const { claim } = result
      let kill = (): void => {}
      const death = new Promise<typeof killed>((resolve) => {
        kill = () => resolve(killed)
      })
      const dies = (): Promise<never> => {
        kill()
        return never
      }
      if (trouble === 'killed at the start') return null
      const keeper = createEntryKeeper({ source, payloadKeys: null })
      const written: WrittenObject[] = []
      const call = async ({ method, url, body }: CallRequest): Promise<CallOutcome> => {
        if (method === 'GET') {
          const number = /DocNumber = '([^']*)'/.exec(url.searchParams.get('query') ?? '')?.[1]
          const Id = url.pathname.split('/').at(-1)
          if (number === undefined)
            return answered({ Invoice: found(invoices.filter((one) => one.Id === Id))[0] })
          const visible = invoices.filter(
            (one) => one.DocNumber === number && one.visibleAt <= now(),
          )
          return answered({ QueryResponse: { Invoice: found(visible) } })
        }
        sends += 1
        const { DocNumber: number } = JSON.parse(body ?? '') as Invoice
        if (trouble === 'killed before the call') return dies()
        if (trouble === 'refused') return answered({ Fault: { Error: [{ code: '2020' }] } }, 400)
        if (trouble === 'killed, call executed later') {
          pending.push({ at: now() + LATE_MS, number })
          return dies()
        }
        const invoice = store(number)
        if (trouble === 'killed, call executed') return dies()
        if (trouble === 'response lost')
          return { kind: 'failed', reason: 'ECONNRESET', isSent: true }
        return answered({ Invoice: found([invoice])[0] })
      }
      const deps = stepDeps({
        call,
        now,
        log: () => logger,
        onWritten: (objects) => void written.push(...objects),
        stepBooks: {
          marks: createMarks({ source, keeper }),
          recordedEntry: (query) => recordedEntry(source, query),
        },
      })
      const step = process.steps.get('create')
      if (step === undefined) throw new Error('the process has no step')
      const outcome = await Promise.race([runStep(step, claim, process, deps), death])
      if (typeof outcome === 'symbol' || trouble === 'killed after the response') return null
      const options = { steps: ['create'] as const, policy: defaultRetryPolicy, random: 0 }
      const entries = await keeper.entriesOf(claim.run, written)
      const transition = advance(claim.run, outcome, { ...options, steps: ['create'] })
      await source.record(claim.lease, { ...transition, entries })
      return outcome
    }
    const queue = async (id: string): Promise<void> => {
      await source.queue({ name: 'Export', steps: ['create'] }, [
        { TransactionID: id, InitialData: null, Realm: '42' },
      ])
    }
    const runOf = async (id: string): Promise<Run> => {
      const detail = await source.get('Export', id, null)
      if (detail === null) throw new Error('the run does not exist')
      return detail.run
    }
    const idOf = async (id: string): Promise<unknown> => {
      const detail = await source.get('Export', id, null)
      return (detail?.items[0]?.Data as { Id?: unknown } | null)?.Id
    }
    /** Makes the attempts of runs until all are over. Before each, time passes until one of them is due. */
    async function finish(
      runs: Readonly<Record<string, ReturnType<typeof create>>>,
      trouble: () => Trouble,
    ): Promise<void> {
      for (let n = 0; n < 60; n += 1) {
        await source.recoverExpiredLeases(10)
        const states = await Promise.all(Object.keys(runs).map(runOf))
        const active = states.filter(({ Status }) => !isOver(Status))
        if (active.length === 0) return
        const due = active.filter(({ NextAttemptAt }) => Date.parse(NextAttemptAt ?? '') <= now())
        await Promise.all(
          due.map((run) =>
            attempt(run, runs[run.TransactionID] as ReturnType<typeof create>, trouble()),
          ),
        )
        await pass(contractTimes.leaseMs + 5_000)
      }
      throw new Error('the runs have not ended')
    }
    const noTrouble = (): Trouble => 'none'
    /** Makes troubles in this order, and then none. */
    const inOrder =
      (...troubles: Trouble[]) =>
      (): Trouble =>
        troubles.shift() ?? 'none'
    const createsOf = async () =>
      (await readEntries(source, { realm: '42' }, { limit: 500 })).map(
        ({ EntityID, TransactionID, Operation }) => `${Operation} ${EntityID} by ${TransactionID}`,
      )

    it('creates an object, whose id and version are the data of the step', async () => {
      await queue('1')
      await finish({ 1: create('fail') }, noTrouble)
      const detail = await source.get('Export', '1', 0)
      expect(detail?.items).toMatchObject([
        { Status: 'Completed', ResponseStatus: 200, Data: { Id: '1', SyncToken: '0' } },
      ])
      expect(await createsOf()).toEqual(['create 1 by 1'])
    })

    it.each(TROUBLES.filter((trouble) => trouble !== 'refused'))(
      'creates one object if the first attempt is: %s',
      async (trouble) => {
        await queue('1')
        await finish({ 1: create('fail') }, inOrder(trouble))
        expect(await runOf('1')).toMatchObject({ Status: 'Completed' })
        expect(invoices).toHaveLength(1)
        expect(await createsOf()).toEqual(['create 1 by 1'])
        expect(await idOf('1')).toBe('1')
      },
    )

    it('sends nothing before a new object must be visible to queries', async () => {
      await queue('1')
      sends = 0
      await attempt(await runOf('1'), create('fail'), 'response lost')
      await pass(contractTimes.leaseMs)
      const outcome = await attempt(await runOf('1'), create('fail'), 'none')
      expect(outcome).toMatchObject({ kind: 'later', isInDoubt: true })
      expect((outcome as { delayMs: number }).delayMs).toBeGreaterThan(VISIBLE_MS)
      expect(sends).toBe(1)
      await pass(WAIT_MS)
      expect(await attempt(await runOf('1'), create('fail'), 'none')).toMatchObject({
        kind: 'completed',
        response: { status: 200 },
      })
      expect(sends).toBe(1)
    })

    it('a second run with the mark fails at once, and names the run and the entry', async () => {
      for (const id of ['1', '2']) await queue(id)
      await finish({ 1: create('fail') }, noTrouble)
      const [entry] = await readEntries(source, {}, { limit: 1 })
      await finish({ 2: create('fail') }, noTrouble)
      const { Status, ErrorClass, LastError, InDoubt } = await runOf('2')
      expect([Status, ErrorClass, InDoubt]).toEqual(['Failed', 'already_exists', false])
      for (const part of ['Export/1', 'step create', 'Invoice 1', entry?.EntryID ?? 'no entry'])
        expect(LastError).toContain(part)
      expect(LastError).not.toContain('A-1')
      expect(invoices).toHaveLength(1)
    })

    it('a run that adopts gets the object of the other run, also while that one is creating it', async () => {
      for (const id of ['1', '2']) await queue(id)
      await attempt(await runOf('1'), create('fail'), 'response lost')
      expect(await attempt(await runOf('2'), create('adopt'), 'none')).toMatchObject({
        kind: 'later',
      })
      await finish({ 1: create('fail'), 2: create('adopt') }, noTrouble)
      expect([await idOf('1'), await idOf('2')]).toEqual(['1', '1'])
      expect(await createsOf()).toEqual(['create 1 by 1'])
    })

    it('of two runs that start at once with one mark, one creates the object', async () => {
      for (const id of ['1', '2']) await queue(id)
      await finish({ 1: create('fail'), 2: create('fail') }, noTrouble)
      const states = [await runOf('1'), await runOf('2')].map(({ Status }) => Status).toSorted()
      expect(states).toEqual(['Completed', 'Failed'])
      expect(invoices).toHaveLength(1)
    })

    it('a mark is free again if the books have rejected the object, and if it was deleted', async () => {
      for (const id of ['1', '2', '3']) await queue(id)
      await finish({ 1: create('fail') }, inOrder('refused'))
      expect(await runOf('1')).toMatchObject({ Status: 'Failed', InDoubt: false })
      await finish({ 2: create('fail') }, noTrouble)
      expect(await runOf('2')).toMatchObject({ Status: 'Completed' })
      await finish({ 3: create('fail') }, noTrouble)
      expect(await runOf('3')).toMatchObject({ ErrorClass: 'already_exists' })
      await queue('4')
      const { run, lease } = await claimOf('4')
      const keeper = createEntryKeeper({ source, payloadKeys: null })
      const deleted = { realm: '42', entity: 'Invoice', id: '1', operation: 'delete' } as const
      const entries = await keeper.entriesOf(run, [
        { ...deleted, syncToken: null, fields: new Map() },
      ])
      const done: StepOutcome = { kind: 'completed', response: null, data: null, endsRun: false }
      const options = { steps: ['create'], policy: defaultRetryPolicy, random: 0 }
      await source.record(lease, { ...advance(run, done, options), entries })
      await queue('5')
      await finish({ 5: create('fail') }, noTrouble)
      expect(await runOf('5')).toMatchObject({ Status: 'Completed' })
    })
    const claimOf = async (id: string) => {
      const run = await runOf(id)
      const result = await source.claim({
        ...run,
        version: run.Version,
        step: 'create',
        isFirst: true,
        owner: 'w',
      })
      if (result.kind !== 'claimed') throw new Error('not claimed')
      return result.claim
    }

    it('older objects with the same value are not taken for the new one', async () => {
      for (let n = 0; n < 3; n += 1) store('A-1', now() - 3_600_000)
      await queue('1')
      await finish({ 1: create('fail') }, inOrder('response lost'))
      expect(await idOf('1')).toBe('4')
      expect(invoices).toHaveLength(4)
    })

    it('several new objects fail the run in doubt, with their ids', async () => {
      await queue('1')
      await finish({ 1: create('fail') }, () => {
        if (invoices.length === 1) store('A-1')
        return invoices.length === 0 ? 'response lost' : 'none'
      })
      const { Status, ErrorClass, InDoubt, LastError } = await runOf('1')
      expect([Status, ErrorClass, InDoubt]).toEqual(['Failed', 'mark_ambiguous', true])
      expect(LastError).toContain('1, 2')
    })

    it('adopts a single object that no run has created, and fails if there are several', async () => {
      store('A-1', now() - 3_600_000)
      await queue('1')
      await finish({ 1: create('adopt') }, noTrouble)
      expect([await idOf('1'), invoices.length, await createsOf()]).toEqual(['1', 1, []])
      await queue('2')
      await finish({ 2: create('fail') }, noTrouble)
      expect(await runOf('2')).toMatchObject({ ErrorClass: 'already_exists' })
      store('B-1', now() - 3_600_000)
      store('B-1', now() - 3_600_000)
      await queue('3')
      await finish({ 3: create('adopt', 'B-1') }, noTrouble)
      expect(await runOf('3')).toMatchObject({ ErrorClass: 'mark_ambiguous', InDoubt: false })
      expect(invoices).toHaveLength(3)
    })

    it('a company that renumbers keeps the object, once, and a warning says so without the number', async () => {
      keptNumber = () => '1001'
      await queue('1')
      await finish({ 1: create('fail') }, noTrouble)
      expect(await idOf('1')).toBe('1')
      expect(log.filter((line) => line.includes('mark_not_kept'))).toHaveLength(1)
      for (const number of ['A-1', '1001']) expect(log.join('\n')).not.toContain(number)
    })

    it(`creates one object in each of ${seeds} runs that are killed at random points`, async () => {
      for (let seed = 1; seed <= seeds; seed += 1) {
        const random: Random = randomOf(seed)
        const number = `S-${seed}`
        const [one, other] = [`${seed}a`, `${seed}b`]
        const withTwo = random() < 0.4
        const before = invoices.length
        await queue(one)
        if (withTwo) await queue(other)
        const troubles = TROUBLES.filter((trouble) => trouble !== 'refused')
        let left = 4
        const trouble = (): Trouble => {
          left -= 1
          return left < 0 ? 'none' : (troubles[Math.floor(random() * troubles.length)] ?? 'none')
        }
        const onExisting = random() < 0.5 ? 'adopt' : 'fail'
        await finish(
          {
            [one]: create(withTwo ? onExisting : 'fail', number),
            ...(withTwo && { [other]: create(onExisting, number) }),
          },
          trouble,
        )
        await pass(LATE_MS)
        const made = invoices.slice(before)
        expect(
          made.map(({ DocNumber }) => DocNumber),
          `seed ${seed}`,
        ).toEqual([number])
        const id = made[0]?.Id ?? ''
        const states = await Promise.all((withTwo ? [one, other] : [one]).map(runOf))
        const completed = states.filter(({ Status }) => Status === 'Completed')
        expect(completed.length, `seed ${seed}`).toBe(
          withTwo && onExisting === 'fail' ? 1 : states.length,
        )
        for (const { TransactionID } of completed) expect(await idOf(TransactionID)).toBe(id)
        const entries = await readEntries(source, { id }, { limit: 10 })
        expect(
          entries.map(({ Operation }) => Operation),
          `seed ${seed}`,
        ).toEqual(['create'])
      }
    }, 120_000)

    it('gives the id that an earlier run has recorded', async () => {
      const query = { realm: '42', entity: 'Invoice', process: 'Export', transaction: '1' }
      expect(await recordedEntry(source, query)).toMatchObject({ errorClass: 'entry_not_found' })
      await queue('1')
      await finish({ 1: create('fail') }, noTrouble)
      expect(await recordedEntry(source, query)).toEqual({ id: '1' })
      expect(await recordedEntry(source, { ...query, step: 'other' })).toMatchObject({
        errorClass: 'entry_not_found',
      })
      await queue('2')
      const { run, lease } = await claimOf('2')
      const keeper = createEntryKeeper({ source, payloadKeys: null })
      const object = {
        realm: '42',
        entity: 'Invoice',
        operation: 'create',
        syncToken: '0',
      } as const
      const entries = await keeper.entriesOf(
        run,
        ['7', '8'].map((id) => ({ ...object, id, fields: new Map() })),
      )
      const done: StepOutcome = { kind: 'completed', response: null, data: null, endsRun: false }
      const options = { steps: ['create'], policy: defaultRetryPolicy, random: 0 }
      await source.record(lease, { ...advance(run, done, options), entries })
      const several = { ...query, transaction: '2' }
      expect(await recordedEntry(source, several)).toMatchObject({ errorClass: 'entry_ambiguous' })
      expect(await recordedEntry(source, { ...several, step: 'create' })).toEqual({
        id: expect.stringMatching(/^[78]$/),
      })
    })
  })
}
