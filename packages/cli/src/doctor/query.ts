/** Sends doctor's requests to the services. */
import { Problem } from '@integration-host/shared/contracts/problem'
import {
  type CheckResult,
  problem,
  skipped,
} from '@integration-host/shared/observability/checks/check-result'
import { boundedText } from '@integration-host/shared/http/bounded-text'
import { parseJson, SERVICE_LIMITS } from '@integration-host/shared/json'
import type { z } from 'zod'
import type { ServiceAddress } from '../settings.ts'

export type Service = ServiceAddress

/** The data of a response, or the check result that says why there is no data. */
export type QueryResult<T> = { readonly data: T } | { readonly result: CheckResult }

/** Requests JSON with the service key; returns a check result if there is no usable response. */
export async function query<T>(
  { name, url, key }: Service,
  path: string,
  schema: z.ZodType<T>,
  signal: AbortSignal,
): Promise<QueryResult<T>> {
  const check = 'service key'
  const [shortPath = path] = path.split('?')
  if (key === null)
    return {
      result: skipped(check, 'none is set', 'Set SERVICE_API_KEY or SERVICE_API_KEY_FILE.'),
    }
  try {
    const response = await fetch(url + path, {
      headers: { Authorization: `Bearer ${key.reveal()}` },
      redirect: 'manual',
      signal,
    })
    if (response.status === 401)
      return { result: problem(check, 'rejected', `Set SERVICE_API_KEY to a key of ${name}.`) }
    if (response.status === 403)
      return {
        result: skipped(
          shortPath,
          'the key may not read this',
          'Set SERVICE_API_KEY to a key with the scopes credentials:read, transactions:read and audit:read.',
        ),
      }
    const body: unknown = await jsonOf(response)
    const parsed = schema.safeParse(body)
    if (response.ok && parsed.success) return { data: parsed.data }
    const rejection = Problem.safeParse(body)
    return {
      result: rejection.success
        ? skipped(
            shortPath,
            `${rejection.data.detail ?? rejection.data.title} (${rejection.data.code})`,
            `docs/errors.md explains the code${response.status === 503 ? `; see also the check ready of ${name}` : ''}.`,
          )
        : skipped(
            shortPath,
            `status ${response.status}`,
            `Check that ${name} has the same version.`,
          ),
    }
  } catch {
    return {
      result: skipped(
        shortPath,
        'no response in time',
        `Use a longer --timeout, or see the log of ${name}.`,
      ),
    }
  }
}

/** Returns the value of a response in JSON; `null` if it is not JSON, is too large or does not arrive. */
export const jsonOf = async (response: Response): Promise<unknown> =>
  parseJson(await boundedText(response).catch(() => ''), SERVICE_LIMITS) ?? null
