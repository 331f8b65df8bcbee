/**
 * The gateway without a server. Its rules for tokens, repeated calls and cool-downs use the virtual clock. It does
 * not limit the number of calls.
 */
import {
  createTokenCache,
  type TokenSource,
} from '@integration-host/accounting-gateway/token-cache'
import { createPostMarker } from '@integration-host/accounting-gateway/repeatable-post'
import {
  afterFailure,
  afterStatus,
  coolDownMs,
  isIdempotent,
  type Verdict,
} from '@integration-host/accounting-gateway/retry'
import type { CallOutcome, CallRequest, HttpCall } from '@integration-host/coordinator/http-call'
import { errorCodes, IntegrationError } from '@integration-host/shared/errors'
import type { Clock } from '@integration-host/shared/process/clock'
import { intuit } from '@integration-host/shared/provider-profile/intuit'
import type { Sandbox } from './sandbox.ts'
import type { WorkInFlight } from './work-in-flight.ts'

export interface GatewayDeps {
  readonly sandbox: Sandbox
  readonly source: TokenSource
  readonly clock: Clock
  readonly work: WorkInFlight
  /** Called for each call to the accounting API, before the gateway sends the call. */
  readonly onCall: (realm: string, request: CallRequest) => void
}

const DEADLINE_MS = 110_000
const UNAUTHORIZED = 401
const TOO_MANY_REQUESTS = 429

export function createGateway(deps: GatewayDeps) {
  const { sandbox, clock, work } = deps
  const tokens = createTokenCache({ source: deps.source, now: clock.now })
  const markPost = createPostMarker(intuit.accounting, () => crypto.randomUUID())
  const coolDownDefaultMs = intuit.accounting.limits.coolDownSeconds * 1_000

  async function send(request: CallRequest, path: string, bearer: string) {
    const { method, headers, body } = request
    const sent = await sandbox.send(path, {
      method,
      headers: { ...headers, authorization: `Bearer ${bearer}` },
      body,
    })
    return sent === 'dropped' ? null : { response: sent, text: await sent.text() }
  }

  const call: HttpCall = async (request, limits) => {
    const { method, url, headers } = request
    const realm = url.pathname.split('/')[3] ?? ''
    const target = url.pathname + url.search
    const { path, isRepeatable } =
      method === 'POST'
        ? markPost({ path: target, headers })
        : { path: target, isRepeatable: isIdempotent(method) }
    const endsAt = clock.now() + Math.min(DEADLINE_MS, limits.timeoutMs)
    let hasReplayedAfter401 = false
    try {
      let token = await tokens.get(realm)
      for (let attempt = 1; ; attempt += 1) {
        deps.onCall(realm, request)
        const sent = await send(request, path, token.value)
        const tries = {
          canRepeat: isRepeatable,
          attempt,
          remainingMs: endsAt - clock.now(),
          random: 1 - Number.EPSILON,
        }
        let verdict: Verdict
        if (sent === null) verdict = afterFailure(tries)
        else {
          const { status, headers: received } = sent.response
          if (
            status === UNAUTHORIZED &&
            !hasReplayedAfter401 &&
            tokens.isRefreshable(realm, token.version)
          ) {
            hasReplayedAfter401 = true
            token = await tokens.refreshedAfter401(realm, token.version)
            attempt -= 1
            continue
          }
          const retryAfterMs = coolDownMs(received.get('retry-after'), clock.now())
          const isLimited = status === TOO_MANY_REQUESTS
          verdict = afterStatus(
            status,
            retryAfterMs ?? (isLimited ? coolDownDefaultMs : null),
            tries,
          )
          if (verdict.kind === 'pass') return answered(sent.response, sent.text)
        }
        if (verdict.kind === 'pass')
          throw new IntegrationError('upstream_unreachable', 'the sandbox sent no valid response')
        if (!(await work.pause(verdict.delayMs, limits.abort)))
          return { kind: 'aborted', isSent: true }
      }
    } catch (error) {
      if (!(error instanceof IntegrationError)) throw error
      const { code } = error
      const problem = { type: 'about:blank', code, status: errorCodes[code].status }
      return answered(Response.json(problem, { status: problem.status }), JSON.stringify(problem))
    }
  }
  return {
    call,
    /** Removes the cached access token of a company that was connected again. */
    evict: (realm: string, isNewGrant: boolean) => tokens.evict(realm, isNewGrant),
  }
}

const answered = ({ status, headers }: Response, body: string): CallOutcome => ({
  kind: 'answered',
  status,
  headers: [...headers].flat(),
  body,
  retryAfter: headers.get('retry-after'),
  responseId: headers.get('intuit_tid'),
})
