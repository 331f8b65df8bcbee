/** Acquires the lease of a credential for an operation that must not run during a refresh: an export or a removal. */
import { IntegrationError } from '@integration-host/shared/errors'
import { type CredentialStore, type LeasedCredential, notFound } from './credential-store.ts'
import type { CustodyDeps } from './custody-deps.ts'
import { refreshTiming } from './refresh.ts'

export type LeaseDeps = Pick<CustodyDeps, 'owner' | 'sleep'> & {
  readonly store: Pick<CredentialStore, 'acquire'>
}

/**
 * The duration of the lease in milliseconds. An operation waits as long for a refresh in flight, because the token pair
 * of the refresh must not be stored after the operation.
 */
export const LEASE_MS = refreshTiming.leaseMs

/**
 * Acquires the lease of a credential, and waits while another process has it.
 *
 * @throws {IntegrationError} `credential_not_found`, `store_unavailable`, `provider_unavailable`: another
 * process still had the lease after {@link LEASE_MS}.
 * @throws {DecryptionError} if the record of the credential cannot be decrypted.
 */
export async function acquireLease(name: string, deps: LeaseDeps): Promise<LeasedCredential> {
  const until = performance.now() + LEASE_MS
  for (;;) {
    const acquired = await deps.store.acquire(name, deps.owner, LEASE_MS)
    if (acquired.kind === 'absent') throw notFound(name)
    if (acquired.kind === 'acquired') return acquired.leased
    if (performance.now() >= until)
      throw new IntegrationError('provider_unavailable', `${name} is being refreshed`, {
        retryAfterSeconds: 2,
      })
    await deps.sleep(50)
  }
}
