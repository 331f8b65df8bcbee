/** Sends doctor's requests to the services. */
import { ProblemError, statusOf } from '@integration-host/client/problem'
import { createService, type Service as Client } from '@integration-host/client/service'
import { type CheckResult, problem, skipped } from '@integration-host/shared/observability/checks'
import type { z } from 'zod'
import type { ServiceAddress } from '../settings.ts'

export type Service = ServiceAddress

/** The data of a response, or the check result that says why there is no data. */
export type QueryResult<T> = { readonly data: T } | { readonly result: CheckResult }

const MAX_BYTES = 8 * 1_048_576
/** The signal of each request aborts it earlier, at the deadline of doctor. */
const TIMEOUT_MS = 3_600_000

export const clientOf = (service: Pick<Service, 'url' | 'key'>): Client =>
  createService({ ...service, maxBytes: MAX_BYTES, timeoutMs: TIMEOUT_MS })

/** Requests JSON with the service key; returns a check result if there is no usable response. */
export async function query<T>(
  service: Service,
  path: string,
  schema: z.ZodType<T>,
  signal: AbortSignal,
): Promise<QueryResult<T>> {
  if (service.key === null)
    return {
      result: skipped('service key', 'none is set', 'Set SERVICE_API_KEY or SERVICE_API_KEY_FILE.'),
    }
  try {
    return { data: await clientOf(service).request(path, schema, { signal }) }
  } catch (error) {
    return { result: resultOf(error, service, path.split('?')[0] ?? path) }
  }
}

function resultOf(error: unknown, { name }: Service, path: string): CheckResult {
  const status = error instanceof ProblemError ? statusOf(error) : null
  if (!(error instanceof ProblemError) || status === null) {
    const remedy = `Use a longer --timeout, or see the log of ${name}.`
    return skipped(path, 'no response in time', remedy)
  }
  if (status === 401)
    return problem('service key', 'rejected', `Set SERVICE_API_KEY to a key of ${name}.`)
  if (status === 403)
    return skipped(
      path,
      'the key may not read this',
      'Set SERVICE_API_KEY to a key with the scopes credentials:read, transactions:read and audit:read.',
    )
  const { problem: rejection } = error
  if (!('type' in rejection))
    return skipped(path, `status ${status}`, `Check that ${name} has the same version.`)
  return skipped(
    path,
    `${rejection.detail ?? rejection.title} (${rejection.code})`,
    `docs/errors.md explains the code${status === 503 ? `; see also the check ready of ${name}` : ''}.`,
  )
}
