/**
 * The closing dates of the books of companies, for the error of a run whose call closed books have rejected.
 *
 * They are read from the preferences of the company, which is a metered call: at most once a day and company, over all
 * replicas, also if the call fails.
 */
import { credentialName } from '@integration-host/shared/contracts/realm'
import { readWaitingFor } from '@integration-host/shared/contracts/run'
import { asObject, parseJson } from '@integration-host/shared/json'
import { installationValues } from '../records/installation.ts'
import { iso } from '../records/records.ts'
import type { TransactionSource } from '../run/transaction-source.ts'
import { CLOSED, judgeCall } from './judge-call.ts'
import type { StepOutcome } from '../run/progress.ts'
import { type Calling, type SendDeps, sendCall } from './send-call.ts'

export type Blocked = Extract<StepOutcome, { readonly kind: 'blocked' }>

interface ClosingDate {
  /** The last closed day, such as `2026-10-31`; `null` if it is not known. */
  readonly Date: string | null
  /** When the preferences were read, ISO 8601. */
  readonly ReadAt: string
}

export type ClosingDates = ReturnType<typeof createClosingDates>

const DAY_MS = 86_400_000
/** The time limit of the call. The run waits for an operator in any case, so its step should not wait for long. */
const TIMEOUT_MS = 10_000

export function createClosingDates(source: Pick<TransactionSource, 'records'>) {
  const dates = installationValues<ClosingDate>(source, 'closing-date:')
  return {
    /** Returns the closing date of a company; `null` if it is not known. `read` is called at most once a day. */
    async of(realm: string, read: () => Promise<string | null>): Promise<string | null> {
      let isDue = false
      // The time is stored before the call, so that of several replicas only one reads.
      const known = await dates.change(realm, (before, now) => {
        isDue = before === undefined || now - Date.parse(before.ReadAt) >= DAY_MS
        return isDue ? { Date: before?.Date ?? null, ReadAt: iso(now) } : before
      })
      if (!isDue) return known?.Date ?? null
      const date = await read()
      await dates.change(realm, (_, now) => ({ Date: date, ReadAt: iso(now) }))
      return date
    },
    /** Forgets the closing date of a company that was removed. */
    async forget(realm: string): Promise<void> {
      await dates.change(realm, () => undefined)
    },
  }
}

/** Returns the outcome with the closing date in its error, if the date is known. */
export async function withClosingDate(
  outcome: Blocked,
  { process, run }: Pick<Calling, 'process' | 'run'>,
  deps: SendDeps & { readonly closingDates: Pick<ClosingDates, 'of'> },
): Promise<Blocked> {
  const waiting = readWaitingFor(outcome.waitingFor)
  if (waiting?.kind !== 'books') return outcome
  try {
    const date = await closingDateOf(waiting.name, { process, run }, deps)
    return date === null
      ? outcome
      : { ...outcome, error: outcome.error.replace(CLOSED, `${CLOSED}, until ${date}`) }
  } catch {
    // The store is unavailable. The run waits with the error that it has.
    return outcome
  }
}

/**
 * Returns the closing date of a company; `null` if it is not known, or the books are open.
 *
 * @throws {IntegrationError} `store_unavailable`
 */
export function closingDateOf(
  realm: string,
  { process, run }: Pick<Calling, 'process' | 'run'>,
  deps: SendDeps & { readonly closingDates: Pick<ClosingDates, 'of'> },
): Promise<string | null> {
  const read = async (): Promise<string | null> => {
    const sent = await sendCall(
      {
        process,
        run,
        request: { url: `/v3/company/${realm}/preferences` },
        options: { credential: credentialName(realm), timeoutMs: TIMEOUT_MS },
        callKey: null,
        isEnded: () => false,
      },
      // The attempt stores another call than this one.
      { ...deps, onCall() {} },
    )
    if ('end' in sent) return null
    const judged = await judgeCall(sent.outcome, sent.what, sent.owner, deps)
    return 'kind' in judged ? null : closingDateIn(judged.body)
  }
  return deps.closingDates.of(realm, read)
}

function closingDateIn(body: string): string | null {
  const document = asObject(parseJson(body))
  const prefs = asObject(asObject(document?.['Preferences'])?.['AccountingInfoPrefs'])
  const date = prefs?.['BookCloseDate']
  return typeof date === 'string' && /^\d{4}-\d\d-\d\d$/.test(date) ? date : null
}
