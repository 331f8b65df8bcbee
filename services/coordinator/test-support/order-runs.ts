import type { Json } from '../src/run/json-normalization.ts'
import { advance, type StepOutcome } from '../src/run/progress.ts'
import { defaultRetryPolicy } from '../src/run/retry-policy.ts'
import type { ClaimedRun, Run } from '../src/run/run.ts'
import type {
  Claim,
  ClaimRequest,
  ProcessOutline,
  StepRef,
  TransactionSource,
} from '../src/run/transaction-source.ts'

/** The process whose runs the contracts of the transaction source execute. */
export const process: ProcessOutline = {
  name: 'OrderProcess',
  steps: ['order', 'report', 'csv'],
}
export const refs: StepRef[] = process.steps.map((step, index) => ({
  process: process.name,
  step,
  isFirst: index === 0,
}))
export const fromStart = { fromStep: null, latest: null }
export const done: StepOutcome = {
  kind: 'completed',
  response: { status: 200, body: '{"a":1}' },
  data: { a: 1 },
  endsRun: false,
}
export const failing = (retryAfterMs: number): StepOutcome => ({
  kind: 'retry',
  errorClass: 'http_503',
  error: 'GET x responded with 503',
  response: { status: 503, body: 'busy' },
  retryAfterMs,
})
export const failed = {
  kind: 'failed',
  errorClass: 'http_400',
  error: 'no',
  response: null,
} satisfies StepOutcome

/** What a worker does with runs of `process`. `source` returns the source of the current test. */
export function workOn(source: () => TransactionSource) {
  const queue = async (id: string, data: unknown = id): Promise<Run> => {
    const [result] = await source().queue(process, [
      { TransactionID: id, InitialData: data as string },
    ])
    if (result?.run === undefined || result.outcome === 'conflict') throw new Error('not queued')
    return result.run
  }
  const request = (run: ClaimedRun, overrides: Partial<ClaimRequest> = {}): ClaimRequest => {
    const step = overrides.step ?? (run.StepName || 'order')
    return {
      Process: run.Process,
      TransactionID: run.TransactionID,
      ReplayID: run.ReplayID,
      version: run.Version,
      step,
      isFirst: step === 'order',
      owner: 'worker-1',
      ...overrides,
    }
  }
  const claim = async (run: ClaimedRun, overrides: Partial<ClaimRequest> = {}): Promise<Claim> => {
    const result = await source().claim(request(run, overrides))
    if (result.kind !== 'claimed') throw new Error(`not claimed: ${result.kind}`)
    return result.claim
  }
  const record = async (
    { lease, run }: Claim,
    outcome: StepOutcome,
    report?: Json,
  ): Promise<ClaimedRun | null> => {
    const course = { steps: process.steps, policy: defaultRetryPolicy, random: 0.5 }
    const { item, ...transition } = advance(run, outcome, course)
    const reported = item !== null && report !== undefined ? { ...item, report } : item
    const moved = await source().record(lease, { ...transition, item: reported })
    return moved === null ? null : { ...run, ...moved }
  }
  const finish = async (run: ClaimedRun): Promise<ClaimedRun> => {
    let current = run
    while (current.Status !== 'Completed')
      current = (await record(await claim(current), done)) as ClaimedRun
    return current
  }
  return { queue, request, claim, record, finish }
}
