import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { contractTimes, MARGIN_MS, type MovableSource } from '../../test-support/movable-source.ts'
import { type AuditContext, readActions } from '../run/action.ts'
import {
  noProgress,
  type OperationProgress,
  type OperationRequest,
  withOutcomes,
} from './bulk-operation.ts'
import { createOperationStore, type OperationStore } from './bulk-operation-store.ts'

const request: OperationRequest = {
  Action: 'resume',
  Process: 'OrderProcess',
  DryRun: false,
  Request: { Ids: ['1', '2', '3'], PerSecond: 10, Realms: ['42', 'ot-*'] },
}
const ada: AuditContext = {
  by: { keyId: 'console', person: 'ada@example.com' },
  reason: 'the provider is back',
}
const processes = ['OrderProcess', 'Other']
const progress: OperationProgress = withOutcomes({ ...noProgress, Position: 2 }, [
  { kind: 'done', TransactionID: '1', ReplayID: 0 },
  { kind: 'failed', TransactionID: '2', ReplayID: null, code: 'forbidden', isServerError: false },
])

/** Tests the store of bulk operations, which is part of the contract of the port `TransactionSource`. */
export function operationsContract(name: string, open: () => Promise<MovableSource>): void {
  describe(`${name} as a store of bulk operations`, () => {
    let source: MovableSource
    let store: OperationStore
    beforeEach(async () => {
      source = await open()
      store = createOperationStore(source)
    })
    afterEach(() => source[Symbol.asyncDispose]())
    const start = (id: string, more: Partial<OperationRequest> = {}) =>
      store.startOperation(id, { ...request, ...more }, ada)
    const lease = (id: string, owner = 'one') => ({ id, owner })

    it('a stored bulk operation is returned with its request, its actor and no progress', async () => {
      const started = await start('a')
      expect(started).toMatchObject({
        ...request,
        ID: 'a',
        Status: 'Running',
        StatusReason: null,
        KeyID: 'console',
        Person: 'ada@example.com',
        Reason: 'the provider is back',
        Progress: noProgress,
        FinishedAt: null,
      })
      const { Request: _request, ...rest } = started
      const summary = { PerSecond: 10, Realms: ['42', 'ot-*'], IdCount: 3 }
      expect(await store.operation('a')).toEqual({ ...rest, Request: summary })
      expect(await store.operation('b')).toBeNull()
      await start('c', { Request: { Filter: { inDoubt: true }, PerSecond: 1, Realms: ['*'] } })
      expect((await store.operation('c'))?.Request).toEqual({
        Filter: { inDoubt: true },
        PerSecond: 1,
        Realms: ['*'],
        IdCount: null,
      })
    })

    it('bulk operations are listed newest first, page by page', async () => {
      for (const id of ['a', 'b', 'c', 'd', 'e']) {
        await start(id)
        await source.advance(2) // the times of the memory source have a resolution of 1 ms
      }
      const ids: string[][] = []
      let page = await store.operations({ limit: 2 })
      for (;;) {
        ids.push(page.operations.map(({ ID }) => ID))
        if (page.next === null) break
        page = await store.operations({ limit: 2, after: page.next })
      }
      expect(ids).toEqual([['e', 'd'], ['c', 'b'], ['a']])
    })

    it('bulk operations are claimed oldest first; if the process is not loaded, only cancellations are claimed', async () => {
      await start('a')
      await source.advance(2)
      await start('b', { Process: 'Other' })
      await start('c', { Process: 'Unknown' })
      expect(await store.claimOperation(processes, 'one')).toMatchObject({ ID: 'a', ...request })
      expect(await store.claimOperation(processes, 'two')).toMatchObject({ ID: 'b' })
      expect(await store.claimOperation(processes, 'three')).toBeNull()
      await start('d', { Process: 'Unknown', Action: 'cancel' })
      expect(await store.claimOperation(processes, 'three')).toMatchObject({ ID: 'd' })
    })

    it('after the lease of a bulk operation has expired, another replica claims it, and the first replica can no longer record progress', async () => {
      await start('a')
      await store.claimOperation(processes, 'one')
      expect(await store.recordProgress(lease('a'), progress)).toBe('Running')
      await source.advance(contractTimes.leaseMs - MARGIN_MS)
      expect(await store.claimOperation(processes, 'two')).toBeNull()
      await source.advance(MARGIN_MS)
      const taken = await store.claimOperation(processes, 'two')
      expect(taken).toMatchObject({ ID: 'a', Progress: progress, ...request })
      expect(await store.recordProgress(lease('a'), noProgress)).toBeNull()
      expect(await store.renewOperation(lease('a'))).toBe(false)
      expect((await store.operation('a'))?.Progress).toEqual(progress)
    })

    it('the lease of a bulk operation does not expire if it is renewed, with or without a record of progress', async () => {
      await start('a')
      await store.claimOperation(processes, 'one')
      for (const renew of [
        () => store.renewOperation(lease('a')),
        () => store.recordProgress(lease('a'), progress),
      ]) {
        await source.advance(contractTimes.leaseMs * 0.7)
        expect(await renew()).toBeTruthy()
      }
      await source.advance(contractTimes.leaseMs * 0.7)
      expect(await store.claimOperation(processes, 'two')).toBeNull()
    })

    it('a bulk operation that a replica has released can be claimed by another replica at once', async () => {
      await start('a')
      await store.claimOperation(processes, 'one')
      await store.recordProgress(lease('a'), progress, { kind: 'release' })
      expect(await store.claimOperation(processes, 'two')).toMatchObject({ Progress: progress })
    })

    it('a bulk operation that a replica has released is claimed again only after the other operations', async () => {
      await start('a')
      await source.advance(2) // the times of the memory source have a resolution of 1 ms
      await start('b')
      await store.claimOperation(processes, 'one')
      await source.advance(2)
      await store.recordProgress(lease('a'), progress, { kind: 'release' })
      expect(await store.claimOperation(processes, 'one')).toMatchObject({ ID: 'b' })
      expect(await store.claimOperation(processes, 'one')).toMatchObject({ ID: 'a' })
    })

    it('a service key can have at most 20 bulk operations that have not ended', async () => {
      const ids = Array.from({ length: 30 }, (_, n) => `${n}`)
      const results = await Promise.allSettled(ids.map((id) => start(id)))
      const rejected = results.filter((result) => result.status === 'rejected')
      expect(rejected.map(({ reason }) => reason.code)).toEqual(
        Array.from({ length: 10 }, () => 'too_many_operations'),
      )
      expect(await store.countOperations()).toEqual({ Running: 20, Paused: 0 })
      expect(await readActions(source, { limit: 50 })).toHaveLength(20)
      const ofOther = { by: { keyId: 'other', person: null }, reason: null }
      await store.startOperation('of another key', request, ofOther)
      const { operations } = await store.operations({ limit: 50 })
      const unfinished = operations.find(({ KeyID }) => KeyID === 'console')
      await store.stopOperation(unfinished?.ID ?? '', ada)
      await start('next')
    })

    it('a completed bulk operation can be neither claimed nor stopped', async () => {
      await start('a')
      await store.claimOperation(processes, 'one')
      expect(await store.recordProgress(lease('a'), progress, { kind: 'completed' })).toBe(
        'Completed',
      )
      const operation = await store.operation('a')
      expect(operation).toMatchObject({ Status: 'Completed', Progress: progress })
      expect(operation?.FinishedAt).not.toBeNull()
      expect(await store.claimOperation(processes, 'two')).toBeNull()
      await expect(store.stopOperation('a', ada)).rejects.toMatchObject({
        code: 'operation_not_running',
      })
    })

    it('a bulk operation is deleted if it ended long enough ago, but not while it is running or paused', async () => {
      for (const id of ['paused', 'completed', 'stopped']) await start(id)
      await store.claimOperation(processes, 'one')
      const pause = { kind: 'paused', reason: 'store_unavailable' } as const
      await store.recordProgress(lease('paused'), progress, pause)
      await store.claimOperation(processes, 'one')
      await store.recordProgress(lease('completed'), progress, { kind: 'completed' })
      await store.stopOperation('stopped', ada)
      await start('running')
      await source.advance(2) // waits until the age of the ended operations is more than 0 ms
      expect(await store.forgetOperations(60_000, 10)).toBe(0)
      expect(await store.forgetOperations(0, 1)).toBe(1)
      expect(await store.forgetOperations(0, 10)).toBe(1)
      const { operations } = await store.operations({ limit: 10 })
      expect(operations.map(({ ID }) => ID).toSorted()).toEqual(['paused', 'running'])
    })

    it('a paused bulk operation waits until it is continued', async () => {
      await start('a')
      await store.claimOperation(processes, 'one')
      const end = { kind: 'paused', reason: 'store_unavailable' } as const
      expect(await store.recordProgress(lease('a'), progress, end)).toBe('Paused')
      expect(await store.operation('a')).toMatchObject({
        Status: 'Paused',
        StatusReason: 'store_unavailable',
        FinishedAt: null,
      })
      expect(await store.countOperations()).toEqual({ Running: 0, Paused: 1 })
      expect(await store.claimOperation(processes, 'two')).toBeNull()
      expect(await store.continueOperation('a', ada)).toMatchObject({
        Status: 'Running',
        StatusReason: null,
      })
      expect(await store.countOperations()).toEqual({ Running: 1, Paused: 0 })
      expect(await store.claimOperation(processes, 'two')).toMatchObject({ Progress: progress })
      await expect(store.continueOperation('a', ada)).rejects.toMatchObject({
        code: 'operation_not_paused',
      })
    })

    it.each(['completed', 'paused'] as const)(
      'a bulk operation that is stopped while a replica works on it stays stopped, and its last progress is recorded (%s)',
      async (kind) => {
        await start('a')
        await store.claimOperation(processes, 'one')
        expect(await store.stopOperation('a', ada)).toMatchObject({ Status: 'Stopped' })
        const end = kind === 'paused' ? { kind, reason: 'x' } : { kind }
        expect(await store.recordProgress(lease('a'), progress, end)).toBe('Stopped')
        expect(await store.operation('a')).toMatchObject({
          Status: 'Stopped',
          StatusReason: null,
          Progress: progress,
        })
        expect(await store.claimOperation(processes, 'two')).toBeNull()
        await expect(store.continueOperation('a', ada)).rejects.toMatchObject({
          code: 'operation_not_paused',
        })
      },
    )

    it('starting, stopping and continuing a bulk operation are recorded in the action log with the actor and the reason', async () => {
      await start('a')
      await store.claimOperation(processes, 'one')
      await store.recordProgress(lease('a'), progress, { kind: 'paused', reason: 'x' })
      await store.continueOperation('a', ada)
      await store.stopOperation('a', { by: { keyId: 'ops', person: null }, reason: null })
      const what = { Process: 'OrderProcess', TransactionID: null, OperationID: 'a' }
      const byAda = { KeyID: 'console', Person: 'ada@example.com', Reason: ada.reason }
      expect(await readActions(source, { limit: 10 })).toMatchObject([
        { ...what, Action: 'stop_operation', KeyID: 'ops', Reason: null },
        { ...what, ...byAda, Action: 'continue_operation' },
        { ...what, ...byAda, Action: 'start_operation' },
      ])
    })

    it('stopping or continuing a bulk operation that does not exist is rejected', async () => {
      for (const change of [
        () => store.stopOperation('gone', ada),
        () => store.continueOperation('gone', ada),
      ])
        await expect(change()).rejects.toMatchObject({ code: 'operation_not_found' })
      expect(await readActions(source, { limit: 10 })).toEqual([])
    })
  })
}
