import { createService } from '@integration-host/client/service'
import { parseJson, SERVICE_LIMITS } from '@integration-host/shared/json'
import { IntegrationError } from '@integration-host/shared/errors'
import { z } from 'zod'
import type { SandboxFaultBody, SandboxView } from '../../contracts/sandbox.ts'
import { noResponse } from './service-client.ts'

const DEADLINE_MS = 5_000

const Waiting = z.object({
  waiting: z.array(
    z.object({
      target: z.string(),
      calls: z.int(),
      status: z.int().optional(),
      drop: z.string().optional(),
      latencyMs: z.int().optional(),
    }),
  ),
})

/** The fault of the sandbox for each failure that the page offers. */
const FAULTS: Readonly<Record<SandboxFaultBody['Failure'], object>> = {
  unavailable: { status: 503 },
  throttled: { status: 429, headers: { 'Retry-After': '30' } },
  no_response: { drop: 'after' },
  slow: { latencyMs: 5_000 },
}

/** The control API of the sandbox provider. It accepts no key, so the console sends none. */
export interface SandboxClient {
  faults(): Promise<SandboxView['Faults']>
  fail(fault: SandboxFaultBody): Promise<void>
  clearFaults(): Promise<void>
  /** Ends the grants of a company, or its access tokens. */
  act(action: 'revoke' | 'expire', realm: string): Promise<void>
  reset(): Promise<void>
}

/** Each function throws {@link IntegrationError} `not_found`, `service_unavailable` or, except `faults`, `outcome_unknown`. */
export function createSandboxClient(sandboxUrl: string): SandboxClient {
  const sandbox = createService({ url: sandboxUrl, key: null, timeoutMs: DEADLINE_MS })

  async function send(method: 'GET' | 'POST' | 'DELETE', path: string, body?: object) {
    const { status, text } = await sandbox
      .send(`/sandbox${path}`, {
        method,
        body,
        // The sandbox accepts a change only with this type, even without a body, because web pages cannot send it.
        ...(method !== 'GET' && { headers: { 'Content-Type': 'application/json' } }),
      })
      .catch((error: unknown) => {
        throw noResponse('sandbox-provider', method, error)
      })
    if (status === 404)
      throw new IntegrationError('not_found', 'The sandbox has no company with this id')
    if (status >= 300)
      throw new IntegrationError(
        'service_unavailable',
        `sandbox-provider responded with ${status}`,
        {
          retryAfterSeconds: 5,
        },
      )
    return parseJson(text, SERVICE_LIMITS)
  }
  return {
    async faults() {
      const { waiting } = Waiting.parse(await send('GET', '/faults'))
      return waiting.map(({ target, calls, status, drop, latencyMs }) => ({
        Target: target,
        Calls: calls,
        Text:
          status !== undefined
            ? `status ${status}`
            : drop !== undefined
              ? 'no response'
              : `${latencyMs ?? 0} ms late`,
      }))
    },
    async fail({ Target, Failure, Calls }) {
      await send('POST', '/faults', { target: Target, calls: Calls, ...FAULTS[Failure] })
    },
    async clearFaults() {
      await send('DELETE', '/faults')
    },
    async act(action, realm) {
      await send('POST', `/realms/${encodeURIComponent(realm)}/${action}`)
    },
    async reset() {
      await send('POST', '/reset')
    },
  }
}
