/** Sends mutated inputs to a running service and checks that the service still behaves as specified. */
import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import type { StartedProcess } from '@integration-host/shared/test-support/start-process'
import { mutated } from './mutate.ts'

export const targetNames = [
  'gateway-requests',
  'gateway-responses',
  'callbacks',
  'imports',
  'step-messages',
] as const
export type TargetName = (typeof targetNames)[number]

export interface Target extends AsyncDisposable {
  /** Valid inputs from which the mutated inputs are made. */
  readonly inputs: readonly Buffer[]
  /**
   * Sends an input and checks the behaviour of the service.
   *
   * @throws {Error} if the service violates its specification
   */
  check(input: Buffer): Promise<void>
  /** Checks the state after all inputs, such as the content of a store. */
  checkAll?(): Promise<void>
  /** The processes whose memory must stay bounded. */
  readonly processes: readonly Pick<StartedProcess, 'pid' | 'output'>[]
}

const CASES = join(import.meta.dirname, 'cases')
/** Deadline for one input, including the control requests that follow the input. */
const INPUT_DEADLINE_MS = 30_000
/** The number of inputs until the heap of a service has reached its normal size. */
const WARM_UP = 100
const GROWTH_MB = 200

/** Returns the stored inputs of a target by file name. Each file holds the bytes of one input. */
export function casesOf(name: TargetName): readonly (readonly [file: string, input: Buffer])[] {
  const folder = join(CASES, name)
  if (!existsSync(folder)) return []
  return readdirSync(folder)
    .toSorted()
    .map((file) => [file, readFileSync(join(folder, file))] as const)
}

/** Returns the path at which a new input is stored. */
export const casePath = (name: TargetName, file: string): string => join(CASES, name, file)

/**
 * Checks one input for each seed, starting with `seed`, until `seconds` have passed. At least one input is checked.
 *
 * @throws {Error} that names the failing seed and the command that repeats it
 */
export async function fuzz(
  name: TargetName,
  target: Target,
  { seed, seconds }: { readonly seed: number; readonly seconds: number },
): Promise<number> {
  const endsAt = performance.now() + seconds * 1_000
  let next = seed
  let before: readonly number[] | null = null
  do {
    if (next - seed === WARM_UP) before = target.processes.map(residentMb)
    try {
      await withinDeadline(target.check(mutated(target.inputs, next)))
    } catch (error) {
      throw new Error(
        `${name}: the input of seed ${next} failed. To repeat it: npm run test:fuzz -- --target ${name} --seed ${next} ` +
          `--seconds 0 (or --seed ${seed}, if it fails only after the inputs before it). To store it as a case, add --save <name>.`,
        { cause: error },
      )
    }
    next += 1
  } while (performance.now() < endsAt)
  await target.checkAll?.()
  for (const [index, megabytes] of target.processes.map(residentMb).entries())
    if (before !== null && megabytes - (before[index] ?? 0) > GROWTH_MB)
      throw new Error(
        `${name}: from seed ${seed + WARM_UP} to ${next} the memory of a service process grew from ${before[index]} to ${megabytes} MB`,
      )
  return next - seed
}

async function withinDeadline(work: Promise<void>): Promise<void> {
  const { promise, reject } = Promise.withResolvers<never>()
  const timer = setTimeout(
    () =>
      reject(
        new Error(`the check of the input did not finish within ${INPUT_DEADLINE_MS / 1_000} s`),
      ),
    INPUT_DEADLINE_MS,
  )
  try {
    await Promise.race([work, promise])
  } finally {
    clearTimeout(timer)
  }
}

/**
 * Returns the resident memory of a process.
 *
 * @throws {Error} with the output of the process if the process has ended
 */
function residentMb({ pid, output }: Target['processes'][number]): number {
  try {
    const status = readFileSync(`/proc/${pid}/status`, 'utf8')
    return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1_024
  } catch (error) {
    throw new Error(`a service process has ended; output:\n${output().slice(-2_000)}`, {
      cause: error,
    })
  }
}
