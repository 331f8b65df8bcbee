/** Describes the steps of all runs as they happen, from the coordinator's events (`GET /events`). */
import { providerErrorLines } from '@integration-host/cli/response-lines'
import { followEvents, openEvents } from '@integration-host/client/events'
import { createService, dataOf } from '@integration-host/client/service'
import { TransactionEvent } from '@integration-host/shared/contracts/events'
import { TransactionView } from '@integration-host/shared/contracts/transaction'
import { providerErrorOf } from '@integration-host/shared/provider-profile/provider-fault'
import { parseJson } from '@integration-host/shared/json'
import { Secret } from '@integration-host/shared/secrets/secret'
import type { Installation } from './story.ts'

/** A line about a run: about an attempt that has ended, or about the end of the run. */
export interface StepLine {
  /** The time at which the attempt or the run ended, as in RFC 3339. */
  readonly at: string
  /** The process and the transaction; for a replay also the number of the run. */
  readonly run: string
  /**
   * What has ended. For an attempt: its step, outcome, status, duration and error, with the reason from the response.
   * For a run: the status of the run.
   */
  readonly parts: readonly string[]
}

const MAX_RUNS = 10_000

type Key = Pick<TransactionEvent, 'Process' | 'TransactionID' | 'ReplayID'>

/**
 * Calls `show` for each attempt and each run that has ended, until `signal` is aborted. The lines of a run are in the
 * order of its steps. After a lost connection it continues after the last event. The coordinator ends the stream of a
 * client that reads too slowly.
 */
export async function stepLines(
  at: Pick<Installation, 'coordinator' | 'serviceKey'>,
  signal: AbortSignal,
  show: (line: StepLine) => Promise<void>,
): Promise<void> {
  const coordinator = createService({ url: at.coordinator, key: new Secret(at.serviceKey) })
  /**
   * The attempts and ends of runs for which a line was already shown. Only those of the most recently changed runs are
   * stored. Several events can arrive for the same attempt or for the same end of a run, but its line must be shown
   * only once.
   */
  const shown = new Map<string, Set<string>>()

  async function describe(run: Key): Promise<void> {
    const { Process, TransactionID, ReplayID } = run
    const path = `/processes/${encodeURIComponent(Process)}/transactions/${encodeURIComponent(TransactionID)}?replay=${ReplayID}`
    const reply = await coordinator.send(path, { signal })
    if (reply.status !== 200) return // the run was purged after the event
    const view = dataOf(reply, TransactionView)
    const id = JSON.stringify([Process, TransactionID, ReplayID])
    const name = `${Process} ${TransactionID}${ReplayID === 0 ? '' : ` (replay ${ReplayID})`}`
    const already = shown.get(id) ?? new Set()
    shown.delete(id)
    shown.set(id, already)
    for (const oldest of shown.keys()) {
      if (shown.size <= MAX_RUNS) break
      shown.delete(oldest)
    }
    for (const attempt of view.Attempts) {
      const { StepName, StartedAt, FinishedAt } = attempt
      const key = `${StepName} ${attempt.Attempt} ${StartedAt}`
      if (FinishedAt === null || already.has(key)) continue
      already.add(key)
      const reason = reasonOf(attempt, view)
      await show({ at: FinishedAt, run: name, parts: attemptParts(attempt, FinishedAt, reason) })
    }
    const end = `end ${view.CompletedAt}`
    if (view.CompletedAt === null || already.has(end)) return
    already.add(end)
    await show({ at: view.CompletedAt, run: name, parts: [endText(view)] })
  }

  await followEvents(
    {
      open: (lastId, connection) => openEvents(coordinator, '/events', lastId, connection),
      onEvent: async ({ name, data }) =>
        name === 'transaction' ? describe(TransactionEvent.parse(parseJson(data))) : undefined,
      onGap() {},
      pauseMs: () => 1_000,
    },
    signal,
  )
}

type Attempt = TransactionView['Attempts'][number]

const MAX_REASON = 500

/**
 * Returns the reason from the response to an unsuccessful attempt: the provider's errors, or the beginning of the
 * body. The coordinator stores only the response to the last attempt of each step, so the result is `null` for
 * earlier attempts.
 */
function reasonOf(attempt: Attempt, { Items }: TransactionView): string | null {
  const item = Items.find(
    ({ StepName, Attempt: last }) => StepName === attempt.StepName && last === attempt.Attempt,
  )
  const body = item?.ResponseBody?.trim() ?? ''
  if (attempt.Error === null || body === '') return null
  if (providerErrorOf({ ErrorClass: attempt.Outcome, LastError: attempt.Error }) !== null)
    return null // the error begins with the code and the message of the provider
  const text = providerErrorLines(body).join('; ') || body
  return text.length > MAX_REASON ? `${text.slice(0, MAX_REASON).toWellFormed()}…` : text
}

function attemptParts(attempt: Attempt, finishedAt: string, reason: string | null): string[] {
  const { StepName, Outcome, ResponseStatus, Error: error, StartedAt } = attempt
  const ms = Date.parse(finishedAt) - Date.parse(StartedAt)
  return [StepName, Outcome, ResponseStatus, `${ms} ms`, error, reason]
    .filter((part) => part !== null)
    .map(String)
}

const endText = ({ Status, LastError }: TransactionView): string =>
  Status === 'Completed' || LastError === null ? Status : `${Status}: ${LastError}`
