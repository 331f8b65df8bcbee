/** The problems that the client reports: the problems of the services, and the problems of the client itself. */
import type {
  Problem as ProblemDocument,
  ErrorCode,
  errorCodes,
} from '@integration-host/shared/errors'
import type { RunDetailResponse, SignalResponse } from '@integration-host/shared/contracts/run'
import { parseJson } from '@integration-host/shared/json'

/** A run with its items and newest attempts. */
export interface RunDetail extends RunDetailResponse {}

/** The additional members of the problem documents, by problem code. */
interface MembersByCode {
  input_invalid: { readonly errors: readonly string[] }
  event_already_received: Pick<SignalResponse, 'Item'>
}

/** A problem document of a service (RFC 9457). docs/errors.md describes each code. */
export type ServiceProblem = {
  readonly [Code in ErrorCode]: Readonly<
    Pick<ProblemDocument, 'type' | 'title' | 'detail' | 'instance'>
  > & {
    readonly code: Code
    readonly status: (typeof errorCodes)[Code]['status']
  } & (Code extends keyof MembersByCode ? MembersByCode[Code] : unknown)
}[ErrorCode]

/** The run has ended as `Failed` or `Cancelled`. The run's members `ErrorClass` and `LastError` contain the reason. */
interface RunProblem<Code extends 'run_failed' | 'run_cancelled'> {
  readonly code: Code
  readonly title: string
  readonly run: RunDetail
}

/** A problem that the client itself reports. */
export type ClientProblem =
  | RunProblem<'run_failed'>
  | RunProblem<'run_cancelled'>
  /**
   * No response arrived. A request that changes data may have been executed. `idempotencyKey` is the `Idempotency-Key`
   * of a POST to the gateway. With this key the caller can repeat the POST safely.
   */
  | {
      readonly code: 'connection_failed'
      readonly title: string
      readonly idempotencyKey: string | null
    }
  /**
   * The response was not sent by a service of the Integration Host, but for example by a proxy at the service's
   * address.
   */
  | { readonly code: 'response_unexpected'; readonly title: string; readonly status: number }

/** Every problem. A newer service may send a code that this version does not know, so a `switch` needs a `default`. */
export type Problem = ServiceProblem | ClientProblem

/** The code of a problem. docs/errors.md describes each code of a service. */
export type ProblemCode = Problem['code']

/** The type of the problem with the code `Code`. */
export type ProblemOf<Code extends ProblemCode> = Extract<Problem, { readonly code: Code }>

/** The error with which the methods of the client reject. `switch (error.problem.code)` narrows the problem. */
export class ProblemError extends Error {
  override readonly name = 'ProblemError'
  /** The problem that the service has described. The members of the problem depend on its `code`. */
  readonly problem: Problem
  /** The seconds in the header `Retry-After`; `null` if the response did not have this header. */
  readonly retryAfterSeconds: number | null

  constructor(
    problem: Problem,
    details: { readonly cause?: unknown; readonly retryAfterSeconds?: number | null } = {},
  ) {
    const detail = 'detail' in problem && problem.detail ? `: ${problem.detail}` : ''
    super(
      `${problem.title}${detail} (${problem.code})`,
      details.cause === undefined ? undefined : { cause: details.cause },
    )
    this.problem = problem
    this.retryAfterSeconds = details.retryAfterSeconds ?? null
  }
}

/** Returns whether the error is a {@link ProblemError} with this code. */
export function hasProblem<Code extends ProblemCode>(
  error: unknown,
  code: Code,
): error is ProblemError & { readonly problem: ProblemOf<Code> } {
  return error instanceof ProblemError && error.problem.code === code
}

/** The head of a response. */
interface Head {
  readonly status: number
  readonly headers: Pick<Headers, 'get'>
}

/** Returns the status of the response; `null` if no response arrived. */
export const statusOf = ({ problem }: ProblemError): number | null =>
  'status' in problem ? problem.status : null

/** Returns the error for a response; `null` if its text is not a problem document of a service. */
export function serviceProblem(response: Head, text: string): ProblemError | null {
  const problem = parseProblem(text)
  return problem === null
    ? null
    : new ProblemError(problem, { retryAfterSeconds: retryAfterSeconds(response) })
}

/** Returns the error for a response that does not come from a service of the Integration Host. */
export const unexpectedResponse = ({ status }: Head, cause?: unknown): ProblemError =>
  new ProblemError(
    {
      code: 'response_unexpected',
      title: `The response with status ${status} is not one of the API`,
      status,
    },
    { cause },
  )

// The cast is sound, because only the services of the Integration Host use this prefix of `type`, and always with one
// of their codes.
function parseProblem(text: string): ServiceProblem | null {
  const value = parseJson(text) as Partial<ServiceProblem> | null | undefined
  return typeof value?.code === 'string' &&
    value.type === `urn:integration-host:error:${value.code}`
    ? (value as ServiceProblem)
    : null
}

/**
 * Returns the seconds in the header `Retry-After`; `null` if it is absent or contains a date, which the services never
 * send.
 */
export function retryAfterSeconds(response: Head): number | null {
  const text = response.headers.get('Retry-After')
  return text !== null && /^\d{1,9}$/.test(text) ? Number(text) : null
}
