/** The verdict on one round, and the table of all rounds. */
import { type Columns, createTable } from '@integration-host/cli/terminal'

/** What the records of the installation show after a round. The lists contain order numbers or realms. */
export interface Books {
  /** Accepted orders of which the coordinator has no record. */
  readonly lost: readonly string[]
  /** Orders that were run twice, or of which a step was recorded as completed twice. */
  readonly doubled: readonly string[]
  /** Accepted orders that were not completed before the deadline. */
  readonly stuck: readonly string[]
  /** Connected companies whose credential could not be refreshed afterwards. */
  readonly lockedOut: readonly string[]
  /**
   * How many of the coordinator's database rows contradict each other; `null` if the coordinator did not report the
   * number in time.
   */
  readonly violations: number | null
}

export interface Round extends Books {
  readonly name: string
  readonly orders: number
  readonly companies: number
  /** How often a client presented to the provider a refresh token that had already been rotated. */
  readonly tokenReuses: number
  readonly calls: number
  readonly failedCalls: number
  /** The number of calls that also failed when they were repeated. */
  readonly unservedCalls: number
  /** How often each kind of call failed, by the kind and the status of the response, such as `order 503`. */
  readonly failures: Readonly<Record<string, number>>
  /** Seconds from the start of the fault to the last failed call; 0 if no call failed. */
  readonly recoverySeconds: number
  /** Why the round could not be completed; `null` if the round was completed. */
  readonly error: string | null
}

/**
 * Returns whether the round was completed, every accepted order ran exactly once, every connected company can still be
 * refreshed, and no database rows contradict each other. Failed calls alone do not make the result `false`.
 */
export const isKept = (round: Round): boolean =>
  round.error === null &&
  round.violations === 0 &&
  [round.lost, round.doubled, round.stuck, round.lockedOut].every((list) => list.length === 0)

const columns: Columns<Round> = {
  VERDICT: (round) => (isKept(round) ? 'kept' : 'BROKEN'),
  ROUND: 'name',
  ORDERS: 'orders',
  LOST: ({ lost }) => lost.length,
  DOUBLED: ({ doubled }) => doubled.length,
  STUCK: ({ stuck }) => stuck.length,
  COMPANIES: 'companies',
  'LOCKED OUT': ({ lockedOut }) => lockedOut.length,
  'TOKENS REUSED': 'tokenReuses',
  CALLS: 'calls',
  FAILED: 'failedCalls',
  UNSERVED: 'unservedCalls',
  RECOVERY: ({ recoverySeconds }) => `${recoverySeconds.toFixed(1)} s`,
}
const SHOWN = 5

/** Returns the rounds as a table. A row with the verdict BROKEN is followed by the affected orders and companies. */
export function roundTable(rounds: readonly Round[]): string[] {
  const [header = '', ...rows] = createTable(columns)(rounds)
  return [
    header,
    ...rounds.flatMap((round, index) => [
      rows[index] ?? '',
      ...detailsOf(round).map((line) => `        ${line}`),
    ]),
  ]
}

const detailsOf = (round: Round): string[] => [
  ...(round.error === null ? [] : [round.error]),
  ...(round.violations === 0
    ? []
    : [
        `rows that contradict each other: ${round.violations ?? 'the coordinator did not respond'}`,
      ]),
  ...named('lost', round.lost),
  ...named('doubled', round.doubled),
  ...named('stuck', round.stuck),
  ...named('locked out', round.lockedOut),
]

function named(what: string, list: readonly string[]): string[] {
  if (list.length === 0) return []
  const more = list.length > SHOWN ? `, and ${list.length - SHOWN} more` : ''
  return [`${what}: ${list.slice(0, SHOWN).join(', ')}${more}`]
}
