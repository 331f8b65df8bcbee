/**
 * Keeps the secrets of a process out of the requests of its steps, and out of the data that is stored about its steps.
 */
import type { ProcessDefinition } from './definition.ts'
import type { CallOutcome } from './http-call.ts'
import { shortText } from './judge-call.ts'
import type { StepOutcome } from '../run/progress.ts'
import type { Redaction } from './redaction.ts'

/**
 * Returns the name of a secret that a request contains; `null` if the request contains none. The header that
 * authenticates the call to its target is not searched.
 */
export function secretIn(
  redaction: Redaction,
  url: URL,
  headers: Readonly<Record<string, string>> = {},
  body: string | null,
): string | null {
  const parts = [url.href, decoded(url.href), ...Object.values(headers), body ?? '']
  return redaction.nameIn(parts.join('\n'))
}

function decoded(url: string): string {
  try {
    return decodeURIComponent(url)
  } catch {
    return url // a percent sign without a valid encoding
  }
}

export function redactedOutcome(redaction: Redaction, outcome: CallOutcome): CallOutcome {
  if (!('responseId' in outcome)) return outcome
  const responseId = outcome.responseId === null ? null : redaction.text(outcome.responseId)
  return outcome.kind !== 'answered'
    ? { ...outcome, responseId }
    : {
        ...outcome,
        responseId,
        body: redaction.body(outcome.body),
        headers: outcome.headers.map((part) => redaction.text(part)),
      }
}

/**
 * Redacts secrets in the error and the data of a step. A step cannot read the secrets of its process, but may have
 * found one elsewhere, for example in the environment.
 */
export function redactedResult(
  redaction: Redaction,
  outcome: StepOutcome | null,
): StepOutcome | null {
  if (outcome === null) return null
  if (outcome.kind === 'completed') return { ...outcome, data: redaction.json(outcome.data) }
  if (outcome.kind === 'repeated') {
    const { number, state } = outcome.round
    return { ...outcome, round: { number, state: redaction.json(state) } }
  }
  return 'error' in outcome && outcome.error !== undefined
    ? { ...outcome, error: redaction.text(outcome.error) }
    : outcome
}

/** Redacts an error text before it is shortened, because a secret that is cut off would not be found. */
export const shortRedacted = ({ bound }: Pick<ProcessDefinition, 'bound'>, text: string): string =>
  shortText(bound?.redaction?.text(text) ?? text)
