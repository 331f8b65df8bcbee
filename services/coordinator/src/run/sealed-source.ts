import { hasCode } from '@integration-host/shared/errors'
import { DecryptionError } from '@integration-host/shared/secrets/envelope'
import type { Entries } from '../entry/book-entry.ts'
import { isDebounced } from './debounce.ts'
import { notFound } from './errors.ts'
import type { NewChild } from './families.ts'
import type { Item, Round } from './item.ts'
import type { Erasures } from './erasure.ts'
import type { Json } from './json-normalization.ts'
import {
  itemJsonColumns,
  type KeyColumn,
  type PayloadColumn,
  type PayloadPlace,
  type Payloads,
  type PayloadStore,
} from './payload.ts'
import type { Transition } from './progress.ts'
import type { Retention } from './retention.ts'
import { type ClaimedRun, hasInitialData, isRepeated, type Run, type RunKey } from './run.ts'
import type { RunDetail } from './run-detail.ts'
import type { TargetCalls } from './target-calls.ts'
import type {
  Claim,
  ClaimRequest,
  Lease,
  Limited,
  NewTransaction,
  QueueResult,
  ReplayRequest,
  TransactionSource,
} from './transaction-source.ts'

/**
 * The members of the port that neither accept nor return payloads in plain text. The sealed source forwards them to the
 * inner source unchanged. Among them are the members of `PayloadStore`, whose payloads are in their stored form, and
 * the members for webhooks, which contain only ids and names of runs and are stored in plain text.
 *
 * The sealed source must implement every other member. The compiler rejects a new member of the port until the member
 * is listed here or implemented there.
 */
type PassedThrough =
  | keyof Entries
  | keyof Erasures
  | keyof PayloadStore
  | keyof Retention
  | keyof TargetCalls
  | 'addWebhooks'
  | 'audit'
  | 'compact'
  | 'grantSlots'
  | 'lookAtFamilies'
  | 'records'
  | 'runsOf'
  | 'startWebhooks'
  | 'storedProcesses'
  | 'takeTurns'
  | 'watch'
  | typeof Symbol.asyncDispose

/** The members of an item that can be sealed. A claim has only some of them. */
type OpenableItem = Pick<Item, 'StepName' | 'ResponseBody' | 'Data'> &
  Partial<Pick<Item, (typeof itemJsonColumns)[number]>>

/**
 * Returns a transaction source that encrypts payloads before it stores them in `source`, and decrypts them when it
 * reads them. The keys of runs are encrypted so that `source` can compare them. A payload that cannot be decrypted is returned as stored. A claim that contains such a payload is marked
 * as unreadable, and the worker then does not run the step.
 */
export function createSealedSource(
  source: TransactionSource,
  payloads: Payloads,
): TransactionSource {
  const place = (
    { Process, TransactionID, ReplayID }: RunKey,
    column: PayloadColumn,
    step: string | null = null,
  ): PayloadPlace => ({ Process, TransactionID, ReplayID, column, step })

  const openKey = (process: string, column: KeyColumn, stored: string | null): string | null =>
    stored && (unlessUnreadable(() => payloads.openKey(stored, process, column)) ?? stored)
  /** Decrypts the keys of a run. A key that cannot be decrypted stays as stored. */
  const openKeys = (run: Run): Run => {
    const ConcurrencyKey = openKey(run.Process, 'ConcurrencyKey', run.ConcurrencyKey)
    const DebounceKey = openKey(run.Process, 'DebounceKey', run.DebounceKey)
    return ConcurrencyKey === run.ConcurrencyKey && DebounceKey === run.DebounceKey
      ? run
      : { ...run, ConcurrencyKey, DebounceKey }
  }
  /** Decrypts the initial data of a run. Throws the same errors as `Payloads.openJson`. */
  const openRun = <R extends Pick<Run, keyof RunKey | 'InitialData'>>(run: R): R => {
    const opened = payloads.openJson(run.InitialData, place(run, 'InitialData'))
    return opened === run.InitialData ? run : { ...run, InitialData: opened }
  }
  const openItem = <I extends OpenableItem>(run: RunKey, item: I): I => {
    const ResponseBody = payloads.openText(
      item.ResponseBody,
      place(run, 'ResponseBody', item.StepName),
    )
    const opened: Partial<Record<PayloadColumn, Json>> = {}
    for (const column of itemJsonColumns) {
      const stored = item[column]
      if (stored === undefined) continue
      const value = payloads.openJson(stored, place(run, column, item.StepName))
      if (value !== stored) opened[column] = value
    }
    return ResponseBody === item.ResponseBody && Object.keys(opened).length === 0
      ? item
      : { ...item, ...opened, ResponseBody }
  }
  const sealNew = (process: string, transaction: NewTransaction): NewTransaction => {
    const { TransactionID, InitialData, ConcurrencyKey } = transaction
    const key = { Process: process, TransactionID, ReplayID: 0 }
    const sealed = payloads.sealJson(InitialData, place(key, 'InitialData'))
    // The casts are safe, because the types differ only in which members are readonly.
    const initialDataFor = (run: RunKey) =>
      payloads.sealJson(InitialData, place(run, 'InitialData')) as typeof InitialData
    return {
      ...transaction,
      InitialData: sealed as typeof InitialData,
      ...(ConcurrencyKey !== undefined && {
        ConcurrencyKey: payloads.sealKey(ConcurrencyKey, process, 'ConcurrencyKey'),
      }),
      ...(isDebounced(transaction) && {
        initialDataFor,
        Debounce: {
          ...transaction.Debounce,
          Key: payloads.sealKey(transaction.Debounce.Key, process, 'DebounceKey'),
        },
      }),
    }
  }
  const sealChild = (process: string, child: NewChild): NewChild => {
    const key = { Process: process, TransactionID: child.TransactionID, ReplayID: 0 }
    const { ConcurrencyKey } = child
    return {
      ...child,
      InitialData: payloads.sealJson(child.InitialData, place(key, 'InitialData')),
      ConcurrencyKey: ConcurrencyKey && payloads.sealKey(ConcurrencyKey, process, 'ConcurrencyKey'),
    }
  }
  const sealReport = (lease: Lease, report: Json): Json =>
    payloads.sealJson(report, place(lease, 'Report', lease.step))
  const sealTransition = (lease: Lease, transition: Transition): Transition => {
    const { item } = transition
    if (item === null) return transition
    const { response } = item
    const text = response === null ? null : response.body
    const body = payloads.sealText(text, place(lease, 'ResponseBody', lease.step))
    const data = payloads.sealJson(item.data, place(lease, 'Data', lease.step))
    const { ask, round, report } = item
    const isPlain = !ask && round === undefined && report === undefined
    if (body === text && data === item.data && isPlain) return transition
    return {
      ...transition,
      item: {
        ...item,
        response: response && { ...response, body: body ?? '' },
        data,
        ...(ask && { ask: payloads.sealJson(ask, place(lease, 'Ask', lease.step)) }),
        ...(round !== undefined && {
          round: {
            ...round,
            state: payloads.sealJson(round.state, place(lease, 'State', lease.step)),
          },
        }),
        ...(report !== undefined && { report: sealReport(lease, report) }),
      },
    }
  }
  const withSealedSlot = (request: ClaimRequest): ClaimRequest => {
    const { Process, slot } = request
    // The key of a limit for the whole process is empty, and stays so.
    if (!slot?.key) return request
    return { ...request, slot: { ...slot, key: payloads.sealKey(slot.key, Process, 'SlotKey') } }
  }
  const readable = (run: Run): Run => openKeys(unlessUnreadable(() => openRun(run)) ?? run)
  const readableDetail = <D extends Pick<RunDetail, 'run' | 'items'>>(detail: D): D => ({
    ...detail,
    run: readable(detail.run),
    items: detail.items.map((item) => unlessUnreadable(() => openItem(detail.run, item)) ?? item),
  })
  const openRound = (run: ClaimedRun, { number, state }: Round): Round => ({
    number,
    state: payloads.openJson(state, place(run, 'State', run.StepName)),
  })
  const openClaim = (claim: Claim): Claim =>
    unlessUnreadable(() => ({
      ...claim,
      run: openRun(claim.run),
      items: claim.items.map((item) => openItem(claim.run, item)),
      ...(claim.round !== undefined && { round: openRound(claim.run, claim.round) }),
    })) ?? { ...claim, isUnreadable: true }

  const passedThrough: Pick<TransactionSource, PassedThrough> = source
  const sealing: Omit<TransactionSource, PassedThrough> = {
    async queue(process, transactions, by, start) {
      const stored = transactions.map((transaction) => sealNew(process.name, transaction))
      const results = await source.queue(process, stored, by, start)
      // The inner source cannot recognize equal data, because encrypted values of equal data differ. So the data is
      // compared again after decryption.
      return results.map((result, n): QueueResult | Limited => {
        const transaction = transactions[n]
        if (transaction === undefined || result.outcome === 'limited') return result
        if (result.outcome === 'absorbed') return { ...result, run: readable(result.run) }
        if (result.outcome === 'queued') {
          // A later transaction of the same call may already have replaced the data of the run.
          if (isDebounced(transaction)) return { ...result, run: readable(result.run) }
          const { InitialData } = transaction
          const { claim } = result
          return {
            outcome: 'queued',
            run: openKeys({ ...result.run, InitialData }),
            ...(claim !== undefined && {
              claim: { ...claim, run: { ...claim.run, InitialData } },
            }),
          }
        }
        const run = readable(result.run)
        return { outcome: isRepeated(run, transaction) ? 'exists' : 'conflict', run }
      })
    },
    async claim(request) {
      const result = await source.claim(withSealedSlot(request))
      if (result.kind === 'claimed') return { kind: 'claimed', claim: openClaim(result.claim) }
      if (result.kind !== 'unkeyed') return result
      const sealedAt = place(request, 'InitialData')
      return (
        unlessUnreadable(() => ({
          ...result,
          initialData: payloads.openJson(result.initialData, sealedAt),
        })) ?? { ...result, isUnreadable: true }
      )
    },
    record: (lease, transition) => source.record(lease, sealTransition(lease, transition)),
    recordChildren: (lease, page, choose) =>
      source.recordChildren(
        lease,
        { ...page, children: page.children.map((child) => sealChild(page.process.name, child)) },
        (stored) => sealTransition(lease, choose(stored)),
      ),
    recordUndoOfChildren: (lease, choose) =>
      source.recordUndoOfChildren(lease, (undone) => sealTransition(lease, choose(undone))),
    joinFamilies: async (joins) =>
      (
        await source.joinFamilies(
          joins.map((join) => ({
            ...join,
            data: payloads.sealJson(join.data, place(join, 'Data', join.Place)),
          })),
        )
      ).map(readable),
    cancelChildren: async (...args) => (await source.cancelChildren(...args)).map(readable),
    async children(...args) {
      const rows = await source.children(...args)
      return rows.map((row) => ({
        ...row,
        Data: payloads.openJson(row.Data, place(row, 'Data', row.StepName)),
      }))
    },
    renew: (leases) =>
      source.renew(
        leases.map(({ report, ...lease }) =>
          report === undefined ? lease : { ...lease, report: sealReport(lease, report) },
        ),
      ),
    async get(...args) {
      const found = await source.get(...args)
      return found === null ? null : readableDetail(found)
    },
    async exportPage(...args) {
      const page = await source.exportPage(...args)
      return { ...page, runs: page.runs.map(readableDetail) }
    },
    async search(request) {
      const page = await source.search(request)
      return { ...page, runs: page.runs.map(readable) }
    },
    due: async (...args) => (await source.due(...args)).map(readable),
    recoverExpiredLeases: async (...args) =>
      (await source.recoverExpiredLeases(...args)).map(readable),
    runsAtUnknownStep: async (...args) => (await source.runsAtUnknownStep(...args)).map(readable),
    async failRun(...args) {
      const failed = await source.failRun(...args)
      return failed && readable(failed)
    },
    wake: async (...args) => (await source.wake(...args)).map(readable),
    settleWaits: async (...args) => (await source.settleWaits(...args)).map(readable),
    async signal(to, transactionId, replayId, event, act) {
      const dataFor = (run: RunKey) => payloads.sealJson(event.data, place(run, 'Data', to.place))
      const result = await source.signal(to, transactionId, replayId, { ...event, dataFor }, act)
      const { run, item } = result
      if (item === null) return result
      const open = () =>
        payloads.openJson(item.Data, place(run, 'Data', to.place)) as typeof item.Data
      return { ...result, item: { ...item, Data: unlessUnreadable(open) ?? item.Data } }
    },
    async replay(process, transactionId, request, act) {
      const { initialData, latest, concurrencyKey } = request
      const sealedKey =
        concurrencyKey && payloads.sealKey(concurrencyKey, process.name, 'ConcurrencyKey')
      const stored = sealedKey ? { ...request, concurrencyKey: sealedKey } : request
      const replay = async (changed: Partial<ReplayRequest>) =>
        readable(await source.replay(process, transactionId, { ...stored, ...changed }, act))
      if (initialData === undefined) return replay({})
      return forCurrentRun(
        {
          process: process.name,
          transactionId,
          replayId: null,
          isFixed: latest !== null || act.ifVersion !== null,
        },
        ({ run }) => {
          const next = { ...run, ReplayID: run.ReplayID + 1 }
          const isSame = hasInitialData(readable(run), initialData)
          const sealed = payloads.sealJson(initialData, place(next, 'InitialData'))
          return replay({
            latest: latest ?? run.ReplayID,
            initialData: isSame ? undefined : (sealed as typeof initialData),
          })
        },
      )
    },
    async settle(process, transactionId, replayId, settlement, act) {
      if (settlement.outcome !== 'done')
        return readable(await source.settle(process, transactionId, replayId, settlement, act))
      const isFixed = act.ifVersion !== null
      return forCurrentRun(
        { process: process.name, transactionId, replayId, isFixed },
        async ({ run }) => {
          const step = run.StepName || process.steps[0]
          const data = payloads.sealJson(settlement.data, place(run, 'Data', step))
          const ofVersion = { ...act, ifVersion: act.ifVersion ?? run.Version }
          const { ReplayID } = run
          const sealed = { ...settlement, data }
          return readable(await source.settle(process, transactionId, ReplayID, sealed, ofVersion))
        },
      )
    },
    failPastDeadline: async (...args) => (await source.failPastDeadline(...args)).map(readable),
    operate: async (...args) => readable(await source.operate(...args)),
  }
  return { ...passedThrough, ...sealing }

  /**
   * Calls `work` with the current run, because a payload is encrypted for a step and a `ReplayID`. If the run has
   * changed in the meantime, `work` fails with `version_moved`, and is called again with the changed run. If the client
   * required a certain run or version, `work` is called only once.
   */
  async function forCurrentRun<Result>(
    { process, transactionId, replayId, isFixed }: RunReference,
    work: (found: RunDetail) => Promise<Result>,
  ): Promise<Result> {
    for (let tries = 1; ; tries += 1) {
      const parts = { attempts: 0, bodies: false }
      const found = await source.get(process, transactionId, replayId, parts)
      if (found === null) throw notFound(process, transactionId, replayId)
      try {
        return await work(found)
      } catch (error) {
        if (isFixed || tries === MAX_TRIES || !hasCode(error, 'version_moved')) throw error
      }
    }
  }
}

interface RunReference {
  readonly process: string
  readonly transactionId: string
  readonly replayId: number | null
  /** Whether the client requires a certain run or a certain version. */
  readonly isFixed: boolean
}

const MAX_TRIES = 5

/** Returns the result of `open`; `null` if a payload cannot be decrypted. */
function unlessUnreadable<T>(open: () => T): T | null {
  try {
    return open()
  } catch (error) {
    if (error instanceof DecryptionError) return null
    throw error
  }
}
