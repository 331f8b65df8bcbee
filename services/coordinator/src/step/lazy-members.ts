import type { StepLog } from './redaction.ts'
import type { StepAbort } from './step-abort.ts'

/** The members of a step whose value is created only if it is read, because most steps read neither. */
export interface LazyMembers {
  readonly signal: AbortSignal
  readonly log: StepLog
}

export interface LazySources {
  readonly abort: StepAbort
  readonly log: () => StepLog
}

const SOURCES = Symbol('sources of the lazy members')
interface WithSources {
  [SOURCES]?: LazySources
}

/**
 * Adds `signal` and `log` to the step and returns it. Two getters in the object literal of the step would do the same.
 *
 * All steps share these two accessors, because V8 stores an object whose accessors are functions of its own as a hash
 * table, which takes three times as long to create and 1.5 KB of memory for each step, and allocates getters of a literal
 * in the old generation (docs/adr/0048). `Object.defineProperties` would take twice as long as the two calls.
 */
export function withLazyMembers<Members extends object>(
  members: Members,
  sources: LazySources,
): Members & LazyMembers {
  ;(members as WithSources)[SOURCES] = sources
  Object.defineProperty(members, 'signal', accessors.signal)
  return Object.defineProperty(members, 'log', accessors.log) as Members & LazyMembers
}

const accessors = {
  signal: {
    enumerable: true,
    configurable: true,
    get(this: WithSources) {
      return this[SOURCES]?.abort.signal
    },
  },
  log: {
    enumerable: true,
    configurable: true,
    get(this: WithSources) {
      return this[SOURCES]?.log()
    },
  },
}
