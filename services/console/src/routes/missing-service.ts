import { IntegrationError } from '@integration-host/shared/errors'
import type { MissingService } from '../contracts/missing-service.ts'

export interface PartOfService<Part> {
  readonly part: Part
  /** The service, if its part is missing. */
  readonly unavailable: readonly MissingService[]
}

/**
 * Resolves to the part of a response that is read from `service`. If the service does not respond, resolves to `empty`, so
 * that the parts of the other services can be shown.
 *
 * @throws {IntegrationError} the service rejects the request as invalid.
 */
export async function partOf<Part>(
  service: string,
  read: Promise<Part>,
  empty: Part,
): Promise<PartOfService<Part>> {
  try {
    return { part: await read, unavailable: [] }
  } catch (error) {
    if (!(error instanceof IntegrationError) || error.code === 'invalid_request') throw error
    const { code, message, members } = error
    const since = typeof members['since'] === 'string' ? members['since'] : null
    const detail = message.includes(service) ? message : `${service}: ${message}`
    return {
      part: empty,
      unavailable: [{ Service: service, Code: code, Detail: detail, Since: since }],
    }
  }
}
