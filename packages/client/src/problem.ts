/** The problems that the client reports: those of the services by their `code`, and those of the client itself. */
import type { Problem as ProblemDocument } from '@integration-host/shared/contracts/problem'
import type { RunDetailResponse } from '@integration-host/shared/contracts/run'
import type { ErrorCode, errorCodes } from '@integration-host/shared/errors'

/** A run with its items and newest attempts. */
export type RunDetail = RunDetailResponse

/** Members of the problem document that only problems with this code have. */
interface MembersByCode {
  input_invalid: { readonly errors: readonly string[] }
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

/** The run ended as `Failed` or `Cancelled`. The run says why: `ErrorClass` and `LastError`. */
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
   * No response arrived. The request may have been executed unless it only reads. `idempotencyKey` is the `Idempotency-Key` of
   * a POST to the gateway: send the call again with it.
   */
  | {
      readonly code: 'connection_failed'
      readonly title: string
      readonly idempotencyKey: string | null
    }
  /** The response is not one of this API: another server responds at the address, such as a proxy. */
  | { readonly code: 'response_unexpected'; readonly title: string; readonly status: number }

/** Every problem. A newer service may send a code that this version does not know, so a `switch` needs a `default`. */
export type Problem = ServiceProblem | ClientProblem

/** The error with which the methods of the client reject. `switch (error.problem.code)` narrows the problem. */
export class ProblemError extends Error {
  override readonly name = 'ProblemError'
  readonly problem: Problem
  /** The seconds of `Retry-After`; `null` if the response had none. */
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
export const hasProblem = <Code extends Problem['code']>(
  error: unknown,
  code: Code,
): error is ProblemError & { readonly problem: Extract<Problem, { readonly code: Code }> } =>
  error instanceof ProblemError && error.problem.code === code

/** Returns the error for a response with a problem document of a service; `null` if the text is something else. */
export function serviceProblem(response: Response, text: string): ProblemError | null {
  const problem = parseProblem(text)
  return problem === null
    ? null
    : new ProblemError(problem, { retryAfterSeconds: retryAfterSeconds(response) })
}

/** Returns the error for a response that is not one of this API. */
export const unexpectedResponse = ({ status }: Response): ProblemError =>
  new ProblemError({
    code: 'response_unexpected',
    title: `The response with status ${status} is not one of the API`,
    status,
  })

// The cast is sound, because only the services of the host use this prefix for `type`, together with their codes.
function parseProblem(text: string): ServiceProblem | null {
  try {
    const value = JSON.parse(text) as Partial<ServiceProblem> | null
    return typeof value?.code === 'string' &&
      value.type === `urn:integration-host:error:${value.code}`
      ? (value as ServiceProblem)
      : null
  } catch {
    return null
  }
}

/** Returns the seconds of `Retry-After`; `null` if it is absent or a date, which the services do not send. */
export function retryAfterSeconds(response: Response): number | null {
  const text = response.headers.get('Retry-After')
  return text !== null && /^\d{1,9}$/.test(text) ? Number(text) : null
}
