/** Acquires the lease of a credential for an operation that must not run during a refresh: an export or a removal. */
import { IntegrationError } from '@integration-host/shared/errors'
import { notFound } from './access-token.ts'
import type { CredentialStore, LeasedCredential } from './credential-store.ts'

export interface LeaseDeps {
  readonly store: Pick<CredentialStore, 'acquire'>
  readonly owner: string
  readonly leaseMs: number
  /**
   * How long the operation waits for a refresh in flight, in milliseconds. It waits because the token pair of the
   * refresh must not be stored after the operation.
   */
  readonly waitTimeoutMs: number
  readonly sleep: (ms: number) => Promise<void>
}

/**
 * Acquires the lease of a credential, and waits while another process has it.
 *
 * @throws {IntegrationError} `credential_not_found`, `store_unavailable`, `provider_unavailable`: another
 * process still had the lease after `waitTimeoutMs`.
 * @throws {DecryptionError} if the record of the credential cannot be decrypted.
 */
export async function acquireLease(name: string, deps: LeaseDeps): Promise<LeasedCredential> {
  const until = performance.now() + deps.waitTimeoutMs
  for (;;) {
    const acquired = await deps.store.acquire(name, deps.owner, deps.leaseMs)
    if (acquired.kind === 'absent') throw notFound(name)
    if (acquired.kind === 'acquired') return acquired.leased
    if (performance.now() >= until)
      throw new IntegrationError('provider_unavailable', `${name} is being refreshed`, {
        retryAfterSeconds: 2,
      })
    await deps.sleep(50)
  }
}
