import { randomBytes } from 'node:crypto'
import { createLogger } from '@integration-host/shared/observability/logger'
import { parseKeyRing } from '@integration-host/shared/secrets/envelope'
import { Secret } from '@integration-host/shared/secrets/secret'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { anAct } from '../../test-support/act.ts'
import { reseal } from '../../test-support/payload-keys.ts'
import { aSearch } from '../../test-support/search.ts'
import { createPayloads } from './payload.ts'
import { runKey, type Run } from './run.ts'
import { createSealedSource } from './sealed-source.ts'
import { WHOLE_PROCESS } from './slots.ts'
import type {
  ClaimRequest,
  ClaimResult,
  NewTransaction,
  ProcessOutline,
  QueueResult,
  TransactionSource,
} from './transaction-source.ts'

const process: ProcessOutline = { name: 'OrderProcess', steps: ['order', 'report'] }
const [k1, k2] = ['k1', 'k2'].map((id) => `${id}:${randomBytes(32).toString('base64')}`)
const ring = (...keys: (string | undefined)[]) => parseKeyRing(new Secret(keys.join(',')))
const log = createLogger('test', 'silent')
const CUSTOMER = 'ada@example.com'
const debounced = (Key: string) => ({ Debounce: { Key, Seconds: 3_600, MaxSeconds: 7_200 } })

/** Tests encrypted concurrency keys and debounce keys, which the store compares without decrypting them. */
export function sealedKeysContract(name: string, open: () => Promise<TransactionSource>): void {
  describe(`${name} as a store of encrypted keys of runs`, () => {
    let plain: TransactionSource
    let sealed: TransactionSource
    /** The source after the rotation from `k1` to `k2`. */
    let rotated: TransactionSource
    beforeEach(async () => {
      plain = await open()
      sealed = createSealedSource(plain, createPayloads(ring(k1)))
      rotated = createSealedSource(plain, createPayloads(ring(k2, k1)))
    })
    afterEach(() => plain[Symbol.asyncDispose]())

    const queue = async (
      id: string,
      more: Partial<NewTransaction>,
      source = sealed,
    ): Promise<QueueResult> => {
      const [result] = await source.queue(process, [
        { TransactionID: id, InitialData: id, ...more },
      ])
      if (result?.run === undefined) throw new Error('no result')
      return result
    }
    const queueKeyed = async (id: string, source = sealed): Promise<Run> =>
      (await queue(id, { ConcurrencyKey: CUSTOMER }, source)).run
    const claimRequest = (run: Run, key: string | null = null): ClaimRequest => {
      const { Version: version, StepName: step } = run
      const slot = { limit: 1, key }
      return { ...runKey(run), version, step, isFirst: true, owner: 'worker', slot }
    }
    const claim = async (
      run: Run,
      source = sealed,
      key: string | null = null,
    ): Promise<ClaimResult['kind']> => (await source.claim(claimRequest(run, key))).kind
    const grantedAfterEndOf = async (id: string, source = sealed): Promise<readonly string[]> => {
      const ended = await source.operate('cancel', process, id, null, anAct)
      const { runs } = await source.grantSlots([{ process: process.name, limit: 1 }], [ended])
      return runs.map(({ TransactionID }) => TransactionID)
    }
    const keysOf = async (id: string, source: TransactionSource) => {
      const run = (await source.get(process.name, id, null))?.run
      return [run?.ConcurrencyKey, run?.DebounceKey]
    }

    it('concurrency keys and debounce keys are not stored in plain text, and every read returns them decrypted', async () => {
      const more = { ConcurrencyKey: CUSTOMER, ...debounced('invoice 7') }
      const keys = { ConcurrencyKey: CUSTOMER, DebounceKey: 'invoice 7' }
      expect((await queue('1', more)).run).toMatchObject(keys)
      expect((await queue('1', more)).run).toMatchObject(keys)
      const sealedText = expect.stringMatching(/^\$sealed:0:1\.k1\./)
      expect(await keysOf('1', plain)).toEqual([sealedText, sealedText])
      expect(await keysOf('1', sealed)).toEqual([CUSTOMER, 'invoice 7'])
      expect((await sealed.search(aSearch(process.name))).runs).toMatchObject([keys])
    })

    it('the runs of a sealed concurrency key share its limit, and those of other keys do not', async () => {
      const [one, two] = [await queueKeyed('1'), await queueKeyed('2')]
      const other = (await queue('3', { ConcurrencyKey: 'bob@example.com' })).run
      expect(await claim(one)).toBe('claimed')
      expect(await claim(two)).toBe('no_slot')
      expect(await claim(other)).toBe('claimed')
      expect(await grantedAfterEndOf('1')).toEqual(['2'])
    })

    it('a limit for the whole process counts all of its runs, also those of a replica without keys', async () => {
      const [one, two] = [await queueKeyed('1'), await queueKeyed('2', plain)]
      expect(await claim(one, sealed, WHOLE_PROCESS)).toBe('claimed')
      expect(await claim(two, plain, WHOLE_PROCESS)).toBe('no_slot')
    })

    it('a key that is computed for the first claim of a run, or for the new data of a replay, is stored sealed', async () => {
      await claim(await queueKeyed('1'))
      const { run } = await queue('2', {})
      expect(await sealed.claim(claimRequest(run))).toMatchObject({
        kind: 'unkeyed',
        initialData: '2',
      })
      expect(await claim(run, sealed, CUSTOMER)).toBe('no_slot')
      expect(await keysOf('2', plain)).toEqual(await keysOf('1', plain))
      await sealed.operate('cancel', process, '2', null, anAct)
      const request = { fromStep: null, latest: null, initialData: 3, concurrencyKey: CUSTOMER }
      const replayed = await sealed.replay(process, '2', request, anAct)
      expect(replayed.ConcurrencyKey).toBe(CUSTOMER)
      expect(await keysOf('2', plain)).toEqual(await keysOf('1', plain))
      expect(await claim(replayed)).toBe('no_slot')
    })

    it('requests with the same debounce key share a run, whose key is sealed', async () => {
      await queue('1', debounced('invoice 7'))
      expect(await queue('2', debounced('invoice 7'))).toMatchObject({
        outcome: 'absorbed',
        run: { TransactionID: '1', DebounceKey: 'invoice 7', InitialData: '2' },
      })
      for (const id of ['1', '2'])
        expect((await queue(id, debounced('invoice 7'))).outcome).toBe('exists')
      expect((await queue('3', debounced('invoice 8'))).outcome).toBe('queued')
    })

    it('the data of a debounced run is readable after requests of one call have replaced it', async () => {
      const results = await sealed.queue(
        process,
        ['1', '2'].map((id) => ({ TransactionID: id, InitialData: id, ...debounced('invoice 7') })),
      )
      const latest = { TransactionID: '1', InitialData: '2' }
      expect(results).toMatchObject([
        { outcome: 'queued', run: latest },
        { outcome: 'absorbed', run: latest },
      ])
      expect((await sealed.get(process.name, '1', null))?.run).toMatchObject(latest)
    })

    it.each([
      ['in plain text', () => plain],
      ['sealed with an older key', () => sealed],
    ])(
      'a concurrency key that is stored %s is read, counts separately, and counts together with new runs after the resealing pass',
      async (_, before) => {
        const [held, waiting] = [
          await queueKeyed('1', before()),
          await queueKeyed('2', before()),
        ] as const
        expect(await claim(held, before())).toBe('claimed')
        expect(await claim(waiting, before())).toBe('no_slot')
        expect(await keysOf('1', rotated)).toEqual([CUSTOMER, null])
        const separate = await queueKeyed('3', rotated)
        expect(await claim(separate, rotated)).toBe('claimed')
        await reseal(plain, ring(k2, k1), log)
        // Both runs in progress now count, and the run that waited first gets the slot that both have released.
        expect(await claim(await queueKeyed('4', rotated), rotated)).toBe('no_slot')
        expect(await grantedAfterEndOf('1', rotated)).toEqual([])
        expect(await grantedAfterEndOf('3', rotated)).toEqual(['2'])
      },
    )

    it.each([
      ['in plain text', () => plain],
      ['sealed with an older key', () => sealed],
    ])(
      'a waiting run whose debounce key is stored %s absorbs new requests after the resealing pass',
      async (_, before) => {
        await queue('1', debounced('invoice 7'), before())
        expect(await keysOf('1', rotated)).toEqual([null, 'invoice 7'])
        await reseal(plain, ring(k2, k1), log)
        expect(await queue('2', debounced('invoice 7'), rotated)).toMatchObject({
          outcome: 'absorbed',
          run: { TransactionID: '1' },
        })
      },
    )

    it('if requests with the older and the new key have queued two runs, the newer one absorbs after the resealing pass', async () => {
      await queue('1', debounced('invoice 7'))
      expect((await queue('2', debounced('invoice 7'), rotated)).outcome).toBe('queued')
      await reseal(plain, ring(k2, k1), log)
      expect(await keysOf('1', plain)).toEqual(await keysOf('2', plain))
      expect((await queue('3', debounced('invoice 7'), rotated)).run.TransactionID).toBe('2')
    })

    it('a replica of the release before treats a sealed key as a text, and counts the runs that have it', async () => {
      const [one, two] = [await queueKeyed('1'), await queueKeyed('2')]
      expect(await claim(one, plain)).toBe('claimed')
      expect(await claim(two, plain)).toBe('no_slot')
      expect(await grantedAfterEndOf('1', plain)).toEqual(['2'])
      await queue('3', debounced('invoice 7'))
      expect((await queue('4', debounced('invoice 7'), plain)).outcome).toBe('queued')
    })

    it('a key that only looks sealed is stored and read as it was sent', async () => {
      await queueKeyed('1')
      const [lookalike] = (await keysOf('1', plain)) as [string]
      const unsealed = createSealedSource(plain, createPayloads(null))
      for (const [id, source] of [
        ['2', sealed],
        ['3', unsealed],
      ] as const) {
        await queue(id, { ConcurrencyKey: lookalike }, source)
        expect(await keysOf(id, source)).toEqual([lookalike, null])
      }
    })

    it('a key that cannot be decrypted is shown as stored, and its run still counts', async () => {
      const [one, two] = [await queueKeyed('1'), await queueKeyed('2')]
      const foreign = createSealedSource(plain, createPayloads(ring(k2)))
      expect(await keysOf('1', foreign)).toEqual(await keysOf('1', plain))
      expect(await claim(one, foreign)).toBe('claimed')
      expect(await claim(two, foreign)).toBe('no_slot')
    })
  })
}
