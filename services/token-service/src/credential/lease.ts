/** Acquires the lease of a credential for other operations than its refresh. */
import { IntegrationError } from '@integration-host/shared/errors'
import { notFound } from './access-token.ts'
import type { CredentialStore, LeasedCredential } from './credential-store.ts'

export interface LeaseDeps {
  readonly store: Pick<CredentialStore, 'acquire'>
  readonly owner: string
  readonly leaseMs: number
  /** How long to wait for a refresh in flight: its pair must not be stored after the operation. */
  readonly waitTimeoutMs: number
  readonly sleep: (ms: number) => Promise<void>
}

/**
 * @throws {IntegrationError} `credential_not_found`, `store_unavailable`, `provider_unavailable`: another
 * process still had the lease after `waitTimeoutMs`.
 * @throws {DecryptionError}
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
