import { IntegrationError } from '@integration-host/shared/errors'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { postJson } from '@integration-host/shared/test-support/post-json'
import { beforeEach, describe, expect, it } from 'vitest'
import {
  bearer,
  type Fixture,
  type FixtureOptions,
  onBackends,
} from '../../test-support/fixture.ts'
import { publishCredentialEvent } from '../../test-support/credential-event.ts'
import { defineProcess } from '../step/define-process.ts'
import type { ActionPage } from '@integration-host/shared/contracts/operations'
import { PausedCompanies } from '@integration-host/shared/contracts/company'

const keys = [
  {
    id: 'owner',
    scopes: ['transactions:operate', 'transactions:read', 'audit:read'],
    realms: ['42'],
  },
  { id: 'operator', scopes: ['transactions:operate'], realms: ['42'] },
  { id: 'reader', scopes: ['transactions:read'], realms: ['*'] },
  { id: 'limited', scopes: ['transactions:operate'], realms: ['*'], processes: ['Bill'] },
]

/** Tests of the pause of a company, from the API to the run. All backends must pass these tests. */
export function companyPausesContract(kind: 'embedded' | 'real'): void {
  describe(`the pause of a company on ${kind} backends`, () => {
    let calls: string[]
    beforeEach(() => {
      calls = []
    })
    const opened = onBackends(kind, {
      Bill: ['draft', 'approved', 'pay'],
      Late: ['work'],
      Broken: ['work', 'fail'],
      Credit: ['work', 'fail'],
    })

    const bill = defineProcess('Bill')
      .step('draft', (step) => {
        calls.push(`draft ${step.transactionId}`)
        return step.complete(1)
      })
      .event('approved')
      .step('pay', (step) => {
        calls.push(`pay ${step.transactionId}`)
        return step.complete()
      })
    const late = defineProcess('Late', { deadlineSeconds: 0.3 }).step('work', (step) =>
      step.complete(),
    )
    /** The step is held until the test lets it fail, so that the company can be paused before the undo begins. */
    let letFail = Promise.withResolvers<void>()
    const broken = defineProcess('Broken', { onFailure: 'undo' })
      .step('work', (step) => step.complete(), {
        undo: (step) => {
          calls.push('undo')
          return step.complete()
        },
      })
      .step('fail', async (step) => {
        calls.push('fail')
        await letFail.promise
        return step.fail('no stock')
      })
    const credit = defineProcess('Credit')
      .step('work', (step) => step.complete(), {
        undo: (step) =>
          step.execute(
            { url: '/v3/company/42/invoice', method: 'POST', body: {} },
            { credential: 'ACC-42' },
          ),
      })
      .step('fail', (step) => step.fail('no stock', { undo: true }))
    const start = (options: FixtureOptions = {}): Promise<Fixture> => {
      letFail = Promise.withResolvers<void>()
      return opened.start({ processes: [bill, late, broken, credit], keys, ...options })
    }
    const withKey = (id: string | undefined) => (id === undefined ? {} : bearer(id))
    const post = (host: Fixture, path: string, body: object = {}, key?: string) =>
      host.call(path, postJson(body, withKey(key)))
    const pause = (host: Fixture, realm = '42', key?: string) =>
      post(host, `/realms/${realm}/pause`, { Reason: 'month end' }, key)
    const resume = (host: Fixture, realm = '42', key?: string) =>
      post(host, `/realms/${realm}/resume`, { Reason: 'done' }, key)
    const paused = async (host: Fixture, key?: string) => {
      const response = await host.call('/realms/paused', { headers: withKey(key) })
      return PausedCompanies.parse(await response.json()).items
    }
    const queueTo = (host: Fixture, process: string, id: string, Realm = '42') =>
      post(host, `/processes/${process}/transactions`, { TransactionID: id, InitialData: 1, Realm })
    const runOf = async (host: Fixture, process: string, id: string) =>
      (await (await host.call(`/processes/${process}/transactions/${id}`)).json()) as Awaited<
        ReturnType<Fixture['run']>
      >

    it.each(['message', 'inline'] as const)(
      'its runs wait before their step, without item and attempt, and continue after the resume (dispatch: %s)',
      async (dispatch) => {
        const host = await start({ dispatch })
        expect((await pause(host)).status).toBe(200)
        await host.queue('held', 1, '42')
        await host.queue('free', 1, '43')
        await host.queue('none', 1)
        await host.reached('free', 'Waiting')
        await host.reached('none', 'Waiting')
        const held = await host.reached('held', 'Waiting')
        expect(held).toMatchObject({
          StepName: 'draft',
          Attempt: 0,
          WaitingFor: 'paused:42',
          LastError: null,
          ErrorClass: null,
          InDoubt: false,
          Items: [],
          Attempts: [],
        })
        expect(calls.toSorted()).toEqual(['draft free', 'draft none'])
        expect((await resume(host)).status).toBe(200)
        await eventually(async () =>
          expect(await host.run('held')).toMatchObject({ WaitingFor: 'event:approved' }),
        )
        expect(await host.run('held')).toMatchObject({ Attempts: [{ Attempt: 1 }] })
      },
    )

    it('an event is accepted and stored, and the run stops before the next step', async () => {
      const host = await start()
      await host.queue('1', 1, '42')
      await host.queue('early', 1, '43')
      await eventually(async () =>
        expect(await host.run('1')).toMatchObject({ WaitingFor: 'event:approved' }),
      )
      await pause(host)
      await host.queue('2', 1, '42')
      await host.reached('2', 'Waiting')
      for (const id of ['1', '2']) {
        const path = `/processes/Bill/transactions/${id}/events/approved`
        expect((await post(host, path)).status).toBe(200)
      }
      await eventually(async () =>
        expect(await host.run('1')).toMatchObject({ StepName: 'pay', WaitingFor: 'paused:42' }),
      )
      expect(await host.run('2')).toMatchObject({
        StepName: 'draft',
        WaitingFor: 'paused:42',
        Items: [{ StepName: 'approved', Status: 'Received' }],
      })
      await resume(host)
      await host.reached('1', 'Completed')
      await host.reached('2', 'Completed')
    })

    it('the deadline of a run counts while its company is paused', async () => {
      const host = await start()
      await pause(host)
      await queueTo(host, 'Late', 'l')
      await eventually(async () =>
        expect(await runOf(host, 'Late', 'l')).toMatchObject({
          Status: 'Failed',
          ErrorClass: 'deadline_exceeded',
        }),
      )
    })

    it('a step in flight ends, and the undo of its run waits and keeps its reason', async () => {
      const host = await start()
      await queueTo(host, 'Broken', 'b')
      await eventually(() => expect(calls).toEqual(['fail']))
      await pause(host)
      letFail.resolve()
      await eventually(async () =>
        expect(await runOf(host, 'Broken', 'b')).toMatchObject({
          Status: 'Undoing',
          WaitingFor: 'paused:42',
          LastError: 'no stock',
        }),
      )
      expect(calls).toEqual(['fail'])
      await resume(host)
      await eventually(async () =>
        expect(await runOf(host, 'Broken', 'b')).toMatchObject({
          Status: 'Undone',
          LastError: expect.stringContaining('no stock'),
        }),
      )
      expect(calls).toEqual(['fail', 'undo'])
    })

    it('the pause of a process holds an undo as well', async () => {
      const host = await start()
      await queueTo(host, 'Broken', 'b')
      await eventually(() => expect(calls).toEqual(['fail']))
      await post(host, '/processes/Broken/pause')
      letFail.resolve()
      await eventually(async () =>
        expect(await runOf(host, 'Broken', 'b')).toMatchObject({
          Status: 'Undoing',
          StepName: 'fail',
          Attempt: 0,
        }),
      )
      expect(calls).toEqual(['fail'])
      await post(host, '/processes/Broken/resume')
      await eventually(async () =>
        expect(await runOf(host, 'Broken', 'b')).toMatchObject({ Status: 'Undone' }),
      )
      expect(calls).toEqual(['fail', 'undo'])
    })

    it('an undo whose credential is faulted waits for it, and its attempt is not counted', async () => {
      const host = await start()
      let isFaulted = true
      host.target.on('/v3/company/42/invoice', (_, response) => {
        if (!isFaulted) return true
        response.writeHead(424, { 'content-type': 'application/problem+json' })
        response.end('{"code":"credential_faulted"}')
        return undefined
      })
      await queueTo(host, 'Credit', 'c')
      await eventually(async () =>
        expect(await runOf(host, 'Credit', 'c')).toMatchObject({
          Status: 'Undoing',
          StepName: 'work',
          Attempt: 0,
          WaitingFor: 'ACC-42',
        }),
      )
      isFaulted = false
      await publishCredentialEvent(host.bus, 'stored', { Name: 'ACC-42', Version: 2 })
      await eventually(async () =>
        expect(await runOf(host, 'Credit', 'c')).toMatchObject({ Status: 'Undone' }),
      )
    })

    it('survives a restart, and the runs of a company that was resumed before the restart continue', async () => {
      const first = await start()
      await pause(first)
      await first.queue('1', 1, '42')
      await first.reached('1', 'Waiting')
      await first[Symbol.asyncDispose]()
      // The process that resumes the company dies before it continues the runs.
      const second = await start({
        wrapSource: (source) => ({
          ...source,
          async wake() {
            throw new IntegrationError('store_unavailable', 'stopped by the test')
          },
        }),
      })
      expect(await paused(second)).toMatchObject([
        { Realm: '42', Paused: true, Reason: 'month end' },
      ])
      await second.queue('2', 1, '42')
      await second.reached('2', 'Waiting')
      expect(calls).toEqual([])
      const third = await start({ source: second.source, bus: second.bus })
      await resume(second)
      await eventually(async () =>
        expect(await third.run('1')).toMatchObject({ WaitingFor: 'event:approved' }),
      )
      expect(await paused(third)).toEqual([])
    })

    it('a second pause keeps the first one, and both are in the action log with the company', async () => {
      const host = await start()
      const response = await pause(host, '42', 'owner')
      expect(await response.json()).toMatchObject({
        Realm: '42',
        Paused: true,
        PausedBy: 'owner',
        Reason: 'month end',
      })
      await post(host, '/realms/42/pause', { Reason: 'again' })
      expect(await paused(host, 'reader')).toMatchObject([
        { Realm: '42', PausedBy: 'owner', Reason: 'month end' },
      ])
      expect(await (await resume(host)).json()).toMatchObject({ Paused: false, PausedAt: null })
      const log = await host.call('/actions', { headers: withKey('owner') })
      const { items } = (await log.json()) as ActionPage
      expect(
        items.map(({ Action, Process, Realm, Reason }) => [Action, Process, Realm, Reason]),
      ).toEqual([
        ['resume', '*', '42', 'done'],
        ['pause', '*', '42', 'again'],
        ['pause', '*', '42', 'month end'],
      ])
    })

    it('needs a key with transactions:operate for the company and for all processes', async () => {
      const host = await start()
      expect((await pause(host, '43', 'operator')).status).toBe(403)
      expect((await pause(host, '42', 'reader')).status).toBe(403)
      expect((await pause(host, '42', 'limited')).status).toBe(403)
      expect((await pause(host, 'not%20a%20realm')).status).toBe(400)
      expect(await paused(host)).toEqual([])
      // A key that may only change things is not told who has paused the company, and why.
      const response = await pause(host, '42', 'operator')
      expect(await response.json()).toMatchObject({ Paused: true, PausedBy: null, Reason: null })
    })

    it('ends with the erasure of the company, once none of its runs is left', async () => {
      const host = await start()
      await pause(host)
      await host.queue('1', 1, '42')
      await host.reached('1', 'Waiting')
      const kept = await post(host, '/erasures', { Realm: '42', Reason: 'r' })
      expect(await kept.json()).toMatchObject({ notEnded: 1 })
      expect(await paused(host)).toHaveLength(1)
      const erased = await post(host, '/erasures', { Realm: '42', CancelWaiting: true })
      expect(await erased.json()).toMatchObject({ erased: 1, notEnded: 0 })
      expect(await paused(host)).toEqual([])
      await host.queue('2', 1, '42')
      await eventually(async () =>
        expect(await host.run('2')).toMatchObject({ WaitingFor: 'event:approved' }),
      )
    })

    it.runIf(kind === 'real')(
      'applies on every replica within a second, also while the broker tells none',
      async () => {
        const first = await start()
        const second = await start()
        await pause(first)
        await new Promise((resolve) => setTimeout(resolve, 1_000))
        await Promise.all(Array.from({ length: 20 }, (_, n) => second.queue(`${n}`, 1, '42')))
        for (let n = 0; n < 20; n += 1)
          expect(await first.reached(`${n}`, 'Waiting')).toMatchObject({ WaitingFor: 'paused:42' })
        expect(calls).toEqual([])
        await resume(second)
        await eventually(() => expect(calls).toHaveLength(20))
      },
    )
  })
}
