/**
 * Finds inputs for which a service needs more than linear time. A fragment is repeated to `length` and to half of it, and
 * the processor time of the service's process is compared. Processor time is used, because the time on the clock also
 * depends on what else the machine does.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import type { StartedProcess } from '@integration-host/shared/test-support/start-process'
import { type Repetition, repeated, repetitionOf } from './repetitions.ts'

/** A part of an input whose sender chooses its text, such as one header of one route. */
export interface Place {
  readonly name: string
  readonly process: Pick<StartedProcess, 'pid' | 'output'>
  /** The kind of the repetitions that are sent. */
  readonly syntax: Repetition['syntax']
  /** Lengths in bytes, in ascending order. The place accepts at least the first of them. */
  readonly lengths: readonly number[]
  /** Whether the process works on the input after `send` has resolved. */
  readonly isAsynchronous?: boolean
  /** Sends an input, and resolves when the process has responded or has rejected it. */
  send(text: string): Promise<void>
}

/** Shorter times are not judged: they are mostly those of the rest of the request. */
const MIN_MS = 10
/** A linear function doubles its time, a quadratic one multiplies it by four. */
const MAX_RATIO = 3
/** Below this ratio, one measurement of each length is sufficient. */
const CERTAIN_RATIO = 1.6
const SAMPLES = 5
/** The number of times in a row that the ratio must be exceeded, so that a collection of garbage is not reported. */
const CONFIRMATIONS = 3
const IDLE_MS = 15
const SOON_MS = 100
const NANOSECONDS = 1_000_000

/**
 * Returns the processor time, in milliseconds, that all threads of a process have used since its start.
 *
 * @throws {Error} with the output of the process if the process has ended
 */
function processorMs({ pid, output }: Place['process']): number {
  const tasks = `/proc/${pid}/task`
  try {
    return readdirSync(tasks)
      .map((task) => Number(readFileSync(`${tasks}/${task}/schedstat`, 'utf8').split(' ')[0]))
      .reduce((sum, nanoseconds) => sum + nanoseconds / NANOSECONDS, 0)
  } catch (error) {
    throw new Error(`the process has ended; output:\n${output().slice(-2_000)}`, { cause: error })
  }
}

/** Resolves with the processor time that the process uses for one input, in milliseconds. */
async function cost(place: Place, text: string): Promise<number> {
  const before = processorMs(place.process)
  const sentAt = performance.now()
  await place.send(text)
  let after = processorMs(place.process)
  // A process that has not responded at once may still work.
  if (place.isAsynchronous === true || performance.now() - sentAt > SOON_MS)
    for (let last = -1; after - last > 1;) {
      last = after
      await delay(IDLE_MS)
      after = processorMs(place.process)
    }
  return after - before
}

const median = (values: readonly number[]): number =>
  values.toSorted((one, other) => one - other)[Math.floor(values.length / 2)] ?? 0

/** Resolves with the medians for a text of this length and for one of half of it. */
async function costs(place: Place, repetition: Repetition, length: number) {
  const halves: number[] = []
  const wholes: number[] = []
  // The two lengths take turns, so that the compiler of V8 and other processes influence both.
  for (let sample = 0; sample < SAMPLES; sample += 1) {
    halves.push(await cost(place, repeated(repetition, length / 2)))
    wholes.push(await cost(place, repeated(repetition, length)))
  }
  return { half: median(halves), whole: median(wholes) }
}

/**
 * Returns a sentence about the processor time if doubling an input of this place more than triples it; otherwise `null`.
 */
export async function tripled(place: Place, repetition: Repetition): Promise<string | null> {
  for (const length of place.lengths) {
    const first = await cost(place, repeated(repetition, length))
    if (first < MIN_MS) continue
    // Most of these times do not depend on the input, for example that of a long response.
    if ((await cost(place, repeated(repetition, length / 2))) * CERTAIN_RATIO > first) continue
    let found = { half: 0, whole: 0 }
    let confirmations = 0
    for (; confirmations < CONFIRMATIONS; confirmations += 1) {
      found = await costs(place, repetition, length)
      if (found.whole < MIN_MS || found.whole <= MAX_RATIO * found.half) break
    }
    if (confirmations === CONFIRMATIONS)
      return (
        `${place.name} needs ${found.half.toFixed(1)} ms of processor time for ${length / 2} bytes and ` +
        `${found.whole.toFixed(1)} ms for ${length} bytes of ${JSON.stringify(repetition)}`
      )
  }
  return null
}

/**
 * Tries one repetition at each place, then the next one at each place, and so on, until `seconds` have passed or each
 * repetition has been tried. The seed selects the first repetition of each place and the order of the places.
 */
export async function findTripled(
  places: readonly Place[],
  { seed, seconds }: { readonly seed: number; readonly seconds: number },
): Promise<{ readonly tried: number; readonly isWhole: boolean; readonly faults: string[] }> {
  const endsAt = performance.now() + seconds * 1_000
  const order = places.toSorted((one, other) => hash(one.name, seed) - hash(other.name, seed))
  const faults: string[] = []
  let tried = 0
  for (let pass = 0; repetitionOf('json', pass) !== null; pass += 1)
    for (const place of order) {
      if (performance.now() > endsAt) return { tried, isWhole: false, faults }
      const repetition = repetitionOf(place.syntax, pass, hash(place.name, seed))
      if (repetition === null) continue
      const fault = await tripled(place, repetition)
      if (fault !== null) faults.push(fault)
      tried += 1
    }
  return { tried, isWhole: true, faults }
}

/** Returns a number in [0, 2³²) that depends on the text and the seed (FNV-1a). */
function hash(text: string, seed: number): number {
  let value = (2_166_136_261 ^ seed) >>> 0
  for (const character of text)
    value = Math.imul(value ^ (character.codePointAt(0) ?? 0), 16_777_619) >>> 0
  return value
}
