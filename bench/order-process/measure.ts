import { availableParallelism } from 'node:os'
import type { Entry } from './entries.ts'
import { processorTime, type ProcessorTime } from './processor-time.ts'
import { setStage, type StageOptions } from './stage.ts'

const DEADLINE_MS = 120_000
/** The number of transactions, before scaling, that are queued alone before the paced part. */
const ALONE = 6_000

export interface Load {
  readonly kind: 'all' | 'one-by-one'
  /** Factor by which the entry's number of transactions is multiplied. The product is at least one transaction. */
  readonly scale: number
  /**
   * A measurement ends with a paced part, which starts `perSecond` transactions a second for `pacedSeconds` seconds. If
   * `pacedSeconds` is 0, the paced part is skipped.
   */
  readonly perSecond: number
  readonly pacedSeconds: number
}

export interface Measured {
  readonly perSecond: number
  readonly queuedPerSecond: number | null
  /** Processor time per transaction, separately for the entry's Node processes, its servers and the HTTP stub. */
  readonly cpu: { readonly nodeMs: number; readonly serversMs: number; readonly stubMs: number }
  /**
   * Number of processor cores that all other processes of the machine used during the measurement, including this
   * benchmark's clients.
   */
  readonly otherCores: number
  readonly latenciesMs: readonly number[]
  /** Processor time per transaction while transactions were started at a fixed rate. */
  readonly pacedCpuMs: number
}

/**
 * Measures one entry for one round: a warm-up, then all transactions at full speed, then a warm-up by transactions that
 * are queued alone, then transactions at a fixed rate.
 *
 * @throws {Error} if a transaction timed out or did not write its file
 */
export async function measure(
  entry: Entry,
  load: Load,
  { stub, ...options }: StageOptions & { readonly stub: number },
): Promise<Measured> {
  await using stage = await setStage(entry, options)
  const { driver } = stage
  const roots = { ...stage.pids, stub }
  const count = Math.ceil(entry.transactions * load.scale)
  // The warm-up is as long as the measurement. After 2,000 transactions V8 still spends 5 % of the processor time on
  // compiling the hot functions of the coordinator.
  await driver.run({ kind: load.kind, count }, DEADLINE_MS)

  const before = processorTime(roots)
  const all = await driver.run({ kind: load.kind, count }, DEADLINE_MS)
  const used = difference(before, processorTime(roots))

  const { perSecond, pacedSeconds } = load
  // The paced part queues each transaction alone, so its warm-up does too: an engine with a bulk API has not run this
  // code yet. One more transaction opens the connections that the paced part uses.
  const alone = Math.ceil(ALONE * load.scale)
  const pacedCount = pacedSeconds > 0 ? alone + 1 + perSecond * pacedSeconds : 0
  let latenciesMs: readonly number[] = []
  let pacedCpuMs = Number.NaN
  if (pacedSeconds > 0) {
    await driver.run({ kind: 'one-by-one', count: alone }, 2 * DEADLINE_MS)
    await driver.run({ kind: 'paced', perSecond: 1, seconds: 1 }, DEADLINE_MS)
    const beforePaced = processorTime(roots)
    const paced = await driver.run({ kind: 'paced', perSecond, seconds: pacedSeconds }, DEADLINE_MS)
    latenciesMs = paced.latenciesMs
    const { stub: _, ...spent } = difference(beforePaced, processorTime(roots)).seconds
    pacedCpuMs = (sum(Object.values(spent)) / latenciesMs.length) * 1_000
  }
  const files = await stage.files()
  const expected = 2 * count + pacedCount
  if (files.length !== expected)
    throw new Error(`${entry.name} wrote ${files.length} files for ${expected} transactions`)

  const { stub: stubSeconds = 0, ...others } = used.seconds
  const secondsOf = (isCounted: (name: string) => boolean): number =>
    sum(Object.entries(others).flatMap(([name, spent]) => (isCounted(name) ? spent : [])))
  const isNode = (name: string): boolean => name.startsWith('node')
  const perTransactionMs = (seconds: number): number => (seconds / count) * 1_000
  const seconds = all.elapsedMs / 1_000
  return {
    perSecond: count / seconds,
    queuedPerSecond: all.queuedMs === undefined ? null : (count / all.queuedMs) * 1_000,
    cpu: {
      nodeMs: perTransactionMs(secondsOf(isNode)),
      serversMs: perTransactionMs(secondsOf((name) => !isNode(name))),
      stubMs: perTransactionMs(stubSeconds),
    },
    otherCores: Math.min(
      availableParallelism(),
      Math.max(0, used.machineSeconds - sum(Object.values(used.seconds))) / seconds,
    ),
    latenciesMs,
    pacedCpuMs,
  }
}

function difference(before: ProcessorTime, after: ProcessorTime): ProcessorTime {
  return {
    seconds: Object.fromEntries(
      Object.entries(after.seconds).map(([name, value]) => [
        name,
        value - (before.seconds[name] ?? 0),
      ]),
    ),
    machineSeconds: after.machineSeconds - before.machineSeconds,
  }
}

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0)
