/** Ends a credential: revoked at the provider (RFC 7009), then removed, whatever the provider said. */
import { EnvelopeRefused } from '@integration-host/shared/envelope'
import type { Provider } from '../provider/provider.ts'
import { notFound } from './access-token.ts'
import type { CredentialStore } from './credential-store.ts'
import { type CustodyDeps, takeCustody } from './custody.ts'

export interface RemovalDeps extends CustodyDeps {
  readonly store: Pick<CredentialStore, 'acquire' | 'remove'>
  readonly provider: Pick<Provider, 'revoke'>
  readonly announce: () => void
}

/** The function throws as {@link takeCustody} does, but for a record that does not open: it can still go. */
export function createRemoval(deps: RemovalDeps): (name: string, who: string) => Promise<void> {
  const { store, provider, now } = deps
  return async (name, who) => {
    const custody = await takeCustody(name, deps).catch((error: unknown) => {
      if (error instanceof EnvelopeRefused) return null
      throw error
    })
    const token = custody?.refreshToken ?? custody?.credential.accessToken ?? null
    const revoked = token !== null && (await provider.revoke(token))
    const outcome = revoked ? 'ok' : 'not revoked'
    const deed = { at: now(), who, what: 'removed', outcome } as const
    if (!(await store.remove(name, revoked, deed))) throw notFound(name)
    deps.announce()
  }
}
