import { randomBytes } from 'node:crypto'
import { parseKeyRing } from '@integration-host/shared/secrets/envelope'
import { createLogger } from '@integration-host/shared/observability/logger'
import { Secret } from '@integration-host/shared/secrets/secret'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { anAct } from '../../test-support/act.ts'
import { reseal } from '../../test-support/payload-keys.ts'
import { aSearch } from '../../test-support/search.ts'
import { advance, type StepOutcome } from './progress.ts'
import { defaultRetryPolicy } from './retry-policy.ts'
import { createPayloads } from './payload.ts'
import { createResealingPasses } from '../resealing/resealing.ts'
import { FIRST_END } from './retention.ts'
import { createSealedSource } from './sealed-source.ts'
import type { Claim, TransactionSource } from './transaction-source.ts'

const steps = ['order', 'report'] as [string, ...string[]]
const process = { name: 'OrderProcess', steps }
const MARKER = 'business data'
const [k1, k2] = ['k1', 'k2'].map((id) => `${id}:${randomBytes(32).toString('base64')}`)
const ring = (...keys: (string | undefined)[]) => parseKeyRing(new Secret(keys.join(',')))
const completed: StepOutcome = {
  kind: 'completed',
  response: { status: 200, body: `{"note":"${MARKER}"}` },
  data: { note: MARKER },
  endsRun: false,
}
const logged: string[] = []
const log = createLogger('test', 'info', {
  write: (line) => void logged.push(JSON.parse(line).msg),
})

/**
 * Tests of sealed (encrypted) payloads, which are part of the contract of the port
 * `TransactionSource`.
 */
export function payloadContract(name: string, open: () => Promise<TransactionSource>): void {
  describe(`${name} as a store of encrypted payloads`, () => {
    let plain: TransactionSource
    let sealed: TransactionSource
    beforeEach(async () => {
      plain = await open()
      sealed = createSealedSource(plain, createPayloads(ring(k1)))
    })
    afterEach(() => plain[Symbol.asyncDispose]())

    const queue = async (id: string, source = sealed) =>
      (await source.queue(process, [{ TransactionID: id, InitialData: { note: MARKER } }]))[0]
    const claim = async (id: string, source = sealed): Promise<Claim> => {
      const { run } = (await source.get(process.name, id, null)) ?? {}
      if (run === undefined) throw new Error(`${id} is unknown`)
      const { Version: version, StepName: step } = run
      const isFirst = step === 'order'
      const result = await source.claim({ ...run, version, step, isFirst, owner: 'worker' })
      if (result.kind !== 'claimed') throw new Error(`not claimed: ${result.kind}`)
      return result.claim
    }
    const runStep = async (id: string, source = sealed): Promise<void> => {
      const { lease, run } = await claim(id, source)
      const options = { steps, policy: defaultRetryPolicy, random: 0 }
      await source.record(lease, advance(run, completed, options))
    }
    const stored = async (id: string, replay: number | null = null) =>
      JSON.stringify(await plain.get(process.name, id, replay))
    const outdated = async (keyId: string): Promise<number> =>
      (await plain.outdatedPayloads(keyId, { after: null, limit: 100, isCount: true })).count

    const resealWith = (...keys: (string | undefined)[]) => {
      logged.length = 0
      return reseal(plain, ring(...keys), log)
    }

    it('payloads are not stored in plain text, and every read returns them decrypted', async () => {
      expect(await queue('1')).toMatchObject({
        outcome: 'queued',
        run: { InitialData: { note: MARKER } },
      })
      await runStep('1')
      expect(await stored('1')).not.toContain(MARKER)
      expect(await claim('1')).toMatchObject({
        run: { InitialData: { note: MARKER } },
        items: [{ ResponseBody: `{"note":"${MARKER}"}`, Data: { note: MARKER } }],
      })
      expect(await sealed.get(process.name, '1', null)).toMatchObject({
        run: { InitialData: { note: MARKER } },
        items: [{ ResponseBody: `{"note":"${MARKER}"}`, Data: { note: MARKER } }],
      })
      const { runs } = await sealed.search(aSearch(process.name))
      expect(runs).toMatchObject([{ InitialData: { note: MARKER } }])
      expect(await outdated('k1')).toBe(0)
    })

    it('the state of a round and the progress of a step are stored encrypted, also with a new key', async () => {
      await queue('1')
      const { lease, run } = await claim('1')
      const round = { number: 1, state: { note: MARKER } }
      const repeated = { kind: 'repeated', response: null, round, delayMs: 0 } as const
      const options = { steps, policy: defaultRetryPolicy, random: 0 }
      await sealed.record(lease, advance(run, repeated, options))
      const next = await claim('1')
      expect(next.round).toEqual(round)
      const report = { Done: 1, Of: 2, Note: MARKER, At: '2026-11-20T08:00:00.000Z' }
      expect(await sealed.renew([{ ...next.lease, report }])).toEqual([])
      expect(await stored('1')).not.toContain(MARKER)
      expect(await outdated('k1')).toBe(0)
      await resealWith(k2, k1)
      expect(await outdated('k2')).toBe(0)
      const rotated = createSealedSource(plain, createPayloads(ring(k2)))
      expect(await rotated.get(process.name, '1', null)).toMatchObject({
        items: [{ State: { note: MARKER }, Report: report }],
      })
    })

    it('queueing an id again compares the initial data, even if it is encrypted with another key', async () => {
      await queue('1')
      await queue('2', plain)
      const rotated = createSealedSource(plain, createPayloads(ring(k2, k1)))
      for (const source of [sealed, rotated])
        for (const id of ['1', '2']) {
          expect((await queue(id, source))?.outcome).toBe('exists')
          const other = { TransactionID: id, InitialData: { note: 'other' } }
          expect((await source.queue(process, [other]))[0]?.outcome).toBe('conflict')
        }
    })

    it('a replay contains the encrypted data of the previous run', async () => {
      await queue('1')
      await runStep('1')
      await sealed.operate('cancel', process, '1', null, anAct)
      const run = await sealed.replay(process, '1', { fromStep: 'report', latest: null }, anAct)
      expect(run).toMatchObject({ ReplayID: 1, InitialData: { note: MARKER } })
      expect(await stored('1', 1)).not.toContain(MARKER)
      expect(await claim('1')).toMatchObject({
        run: { InitialData: { note: MARKER } },
        items: [{ Data: { note: MARKER } }],
      })
    })

    it('the new initial data of a replay and the data of a settled step are stored encrypted', async () => {
      await queue('1')
      await sealed.operate('cancel', process, '1', null, anAct)
      const request = { fromStep: null, latest: null, initialData: { note: `new ${MARKER}` } }
      const replayed = await sealed.replay(process, '1', request, anAct)
      expect(replayed).toMatchObject({ InputChanged: true, InitialData: request.initialData })
      const { lease } = await claim('1')
      const lost = {
        ...advance(replayed, completed, { steps, policy: defaultRetryPolicy, random: 0 }),
      }
      await sealed.record(lease, {
        ...lost,
        status: 'Failed',
        stepName: 'order',
        isInDoubt: true,
        item: null,
      })
      const data = { note: MARKER }
      expect(
        await sealed.settle(process, '1', null, { outcome: 'done', data }, anAct),
      ).toMatchObject({ InitialData: request.initialData })
      expect(await stored('1')).not.toContain(MARKER)
      expect(await claim('1')).toMatchObject({
        run: { InitialData: request.initialData },
        items: [{ StepName: 'order', Data: data }],
      })
    })

    it('a replay with equal initial data shows no change, even if the data is encrypted', async () => {
      await queue('1')
      await sealed.operate('cancel', process, '1', null, anAct)
      const request = { fromStep: null, latest: null, initialData: { note: MARKER } }
      expect(await sealed.replay(process, '1', request, anAct)).toMatchObject({
        InputChanged: false,
        InitialData: { note: MARKER },
      })
    })

    it('an erased run can be replayed with the new initial data null, and the replay shows that its initial data was changed', async () => {
      await queue('1')
      await sealed.operate('cancel', process, '1', null, anAct)
      const scope = { Process: process.name, Ids: ['1'] }
      const { runs } = await sealed.erasable(scope, { after: null, limit: 10 })
      await sealed.erase(runs, anAct)
      const request = { fromStep: null, latest: null, initialData: null }
      expect(await sealed.replay(process, '1', request, anAct)).toMatchObject({
        ReplayID: 1,
        InitialData: null,
        InputChanged: true,
      })
    })

    it('an export of ended runs contains decrypted payloads', async () => {
      await queue('1')
      await runStep('1')
      await sealed.operate('cancel', process, '1', null, anAct)
      const range = { process: process.name, since: null, until: '9999-01-01T00:00:00.000Z' }
      expect((await sealed.exportPage(range, FIRST_END, 10)).runs).toMatchObject([
        { run: { InitialData: { note: MARKER } }, items: [{ Data: { note: MARKER } }] },
      ])
    })

    it('the stored response of a step is returned in decrypted form', async () => {
      await queue('1')
      await runStep('1')
      for (const replay of [0, null])
        expect(
          await sealed.get(process.name, '1', replay, { bodies: { step: 'order' } }),
        ).toMatchObject({ items: [{ ResponseBody: `{"note":"${MARKER}"}` }] })
    })

    it('if a payload cannot be decrypted, the claim of its run is marked as unreadable, and reads return the encrypted payload', async () => {
      await queue('1')
      const { run } = (await plain.get(process.name, '1', null)) ?? {}
      await plain.queue(process, [{ TransactionID: '2', InitialData: run?.InitialData ?? null }])
      const other = createSealedSource(plain, createPayloads(ring(k2)))
      expect((await claim('2')).isUnreadable).toBe(true)
      expect((await claim('1', other)).isUnreadable).toBe(true)
      expect((await other.get(process.name, '1', null))?.run.InitialData).toEqual(run?.InitialData)
      expect((await queue('1', other))?.outcome).toBe('conflict')
    })

    it('a resealing pass encrypts payloads that are in plain text or encrypted with an old key, and counts the remaining ones', async () => {
      const unsealed = createSealedSource(plain, createPayloads(null))
      for (const [id, source] of [
        ['plain', unsealed],
        ['old', sealed],
      ] as const) {
        await queue(id, source)
        await runStep(id, source)
      }
      expect(await outdated('k2')).toBe(6)
      const seen = await resealWith(k2, k1)
      expect(seen.map((progress) => progress.outdated)).toContain(0)
      expect(await outdated('k2')).toBe(0)
      const rotated = createSealedSource(plain, createPayloads(ring(k2)))
      for (const id of ['plain', 'old']) {
        expect(await stored(id)).not.toContain(MARKER)
        expect(await claim(id, rotated)).toMatchObject({
          run: { InitialData: { note: MARKER } },
          items: [{ ResponseBody: `{"note":"${MARKER}"}`, Data: { note: MARKER } }],
        })
      }
      expect(await createResealingPasses(plain).last()).toMatchObject({
        keyId: 'k2',
        outdated: 0,
        isDone: true,
      })
      expect(await createResealingPasses(plain).begin('other', 'k2', 60_000)).toBeNull()
    })

    it('a resealing pass counts payloads that it cannot decrypt, and does not change them', async () => {
      await queue('1')
      const before = await stored('1')
      const seen = await resealWith(k2)
      expect(seen.at(-1)).toMatchObject({ keyId: 'k2', outdated: 1, isDone: true })
      expect(await stored('1')).toBe(before)
    })

    it('a replica that starts makes a pass, which seals what replicas with other keys have written since the last one', async () => {
      await resealWith(k2, k1)
      await queue('1') // with the key k1
      expect(await outdated('k2')).toBe(1)
      await resealWith(k2, k1)
      expect(await outdated('k2')).toBe(0)
    })

    it('after a resealing pass that continued at a recorded position, the next pass covers all payloads', async () => {
      await queue('1', plain)
      const { run } = (await plain.get(process.name, '1', null)) ?? {}
      if (run === undefined) throw new Error('there is no such run')
      const begun = await createResealingPasses(plain).begin('replica', 'k1', 0)
      if (begun === null) throw new Error('the pass has not begun')
      expect(
        await createResealingPasses(plain).save('replica', { ...begun, after: run, outdated: 1 }),
      ).toBe(true)
      await resealWith(k1)
      expect(await outdated('k1')).toBe(0)
    })

    it('a resealing pass that replaces payloads logs one entry for its start and one for its result', async () => {
      const sealing = 'started sealing payloads with the active key'
      const sealedAll = 'all payloads are sealed with the active key'
      await queue('1')
      await resealWith(k2, k1)
      expect(logged).toEqual([sealing, sealedAll])
      await resealWith(k1)
      expect(logged).toEqual(['payloads cannot be decrypted: check PAYLOAD_KEYS'])
    })

    it('a resealing pass does not replace a payload that has changed since the pass read it', async () => {
      await queue('1', plain)
      const { payloads } = await plain.outdatedPayloads('k1', { after: null, limit: 10 })
      await plain.operate('cancel', process, '1', null, anAct)
      const scope = { Process: process.name, Ids: ['1'] }
      const { runs } = await plain.erasable(scope, { after: null, limit: 10 })
      await plain.erase(runs, anAct)
      const replacements = payloads.map((payload) => ({ ...payload, by: 'sealed' }))
      expect(replacements).toHaveLength(1)
      expect(await plain.replacePayloads(replacements)).toBe(0)
      expect((await plain.get(process.name, '1', null))?.run.InitialData).toBeNull()
    })

    it('payloads that are not encrypted with the current key are read page by page', async () => {
      for (const id of ['1', '2', '3']) await queue(id)
      const ids: string[] = []
      let after = null
      do {
        const page = await plain.outdatedPayloads('k2', { after, limit: 2 })
        ids.push(...page.payloads.map(({ TransactionID }) => TransactionID))
        after = page.next
      } while (after !== null)
      expect(ids).toEqual(['1', '2', '3'])
    })
  })
}
