/** Sends doctor's requests to the services. */
import { ProblemError, statusOf } from '@integration-host/client/problem'
import { createService, type Service as Client } from '@integration-host/client/service'
import { type CheckResult, problem, skipped } from '@integration-host/shared/observability/checks'
import type { ServiceApi } from '../service-api.ts'
import type { ServiceAddress } from '../settings.ts'

/** There is no usable response. The message is that of `result`, which says why. */
export class NoData extends Error {
  override readonly name = 'NoData'
  readonly result: CheckResult

  constructor(result: CheckResult) {
    super(result.found)
    this.result = result
  }
}

/** Resolves with what `work` resolves with, or with its {@link NoData}. */
export const orNoData = <T>(work: Promise<T>): Promise<T | NoData> =>
  work.catch((error: unknown) => {
    if (error instanceof NoData) return error
    throw error
  })

/** Resolves with the results of `work`; without a usable response, with the result that says why. */
export async function orReason(
  work: Promise<readonly CheckResult[]>,
): Promise<readonly CheckResult[]> {
  const results = await orNoData(work)
  return results instanceof NoData ? [results.result] : results
}

/** Requests JSON with the service key. @throws {NoData} there is no usable response. */
export type Reader = Pick<ServiceApi, 'get'>

const MAX_BYTES = 8 * 1_048_576
/** The signal of each request aborts it earlier, at the deadline of doctor. */
const TIMEOUT_MS = 3_600_000

export const clientOf = (service: Pick<ServiceAddress, 'url' | 'key'>): Client =>
  createService({ ...service, maxBytes: MAX_BYTES, timeoutMs: TIMEOUT_MS })

export const createReader = (service: ServiceAddress, signal: AbortSignal): Reader => ({
  async get(path, schema) {
    if (service.key === null)
      throw new NoData(
        skipped('service key', 'none is set', 'Set SERVICE_API_KEY or SERVICE_API_KEY_FILE.'),
      )
    try {
      return await clientOf(service).request(path, schema, { signal })
    } catch (error) {
      throw new NoData(resultOf(error, service, path.split('?')[0] ?? path))
    }
  },
})

function resultOf(error: unknown, { name }: ServiceAddress, path: string): CheckResult {
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
