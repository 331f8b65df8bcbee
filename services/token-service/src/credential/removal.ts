/** Ends a credential: revoked at the provider (RFC 7009), then removed, whatever the provider said. */
import { EnvelopeRefused } from '@integration-host/shared/envelope'
import { IntegrationError } from '@integration-host/shared/errors'
import type { Provider } from '../provider/provider.ts'
import { notFound } from './access-token.ts'
import type { Acquired, CredentialStore } from './credential-store.ts'

export interface RemovalDeps {
  readonly store: Pick<CredentialStore, 'acquire' | 'release' | 'remove'>
  readonly provider: Pick<Provider, 'revoke'>
  readonly owner: string
  readonly leaseMs: number
  /** How long a refresh in flight is waited for: its pair must not outlive the credential. */
  readonly patienceMs: number
  readonly now: () => number
  readonly sleep: (ms: number) => Promise<void>
  readonly announce: () => void
}

/** @throws {IntegrationError} `credential_not_found`, `store_unavailable`. */
export function createRemoval(deps: RemovalDeps): (name: string) => Promise<void> {
  const { store, provider, now } = deps

  async function acquire(name: string): Promise<Acquired | 'unreadable'> {
    const until = now() + deps.patienceMs
    for (;;) {
      try {
        const acquired = await store.acquire(name, deps.owner, deps.leaseMs)
        if (acquired.kind !== 'busy' || now() >= until) return acquired
      } catch (error) {
        // A record that does not open can still be removed.
        if (error instanceof EnvelopeRefused) return 'unreadable'
        throw error
      }
      await deps.sleep(50)
    }
  }

  return async (name) => {
    const acquired = await acquire(name)
    if (acquired !== 'unreadable' && acquired.kind === 'absent') throw notFound(name)
    if (acquired !== 'unreadable' && acquired.kind === 'busy') {
      throw new IntegrationError('provider_unavailable', `${name} is being refreshed`, {
        retryAfterSeconds: 2,
      })
    }
    const custody = acquired === 'unreadable' ? null : acquired.custody
    const token = custody?.refreshToken ?? custody?.credential.accessToken ?? null
    const revoked = token !== null && (await provider.revoke(token))
    if (!(await store.remove(name, { at: now(), revoked }))) throw notFound(name)
    deps.announce()
  }
}
