/** Ends a credential: revoked at the provider (RFC 7009), then removed, whatever the provider said. */
import { EnvelopeRefused } from '@integration-host/shared/envelope'
import type { Provider } from '../provider/provider.ts'
import { notFound } from './access-token.ts'
import type { CredentialStore } from './credential-store.ts'
import { type CustodyDeps, takeCustody } from './custody.ts'

export interface RemovalDeps extends CustodyDeps {
  readonly store: Pick<CredentialStore, 'acquire' | 'remove'>
  readonly provider: Pick<Provider, 'revoke'>
  readonly now: () => number
  readonly announce: () => void
}

/** The function throws as {@link takeCustody} does, but for a record that does not open: it can still go. */
export function createRemoval(deps: RemovalDeps): (name: string, who: string) => Promise<void> {
  const { store, provider, now } = deps
  return async (name, who) => {
    for (;;) {
      const custody = await takeCustody(name, deps).catch((error: unknown) => {
        if (error instanceof EnvelopeRefused) return null
        throw error
      })
      // What was exported is another installation's grant by now: revoking it here would end it there.
      const isElsewhere = custody?.credential.fault?.Code === 'transferred'
      const token = custody?.refreshToken ?? custody?.credential.accessToken ?? null
      const revoked = token !== null && !isElsewhere && (await provider.revoke(token))
      const outcome = revoked ? 'ok' : 'not revoked'
      const deed = { at: now(), who, what: 'removed', outcome } as const
      const removed = await store.remove(name, revoked, deed, custody?.lease.version)
      if (removed === 'absent') throw notFound(name)
      if (removed === 'removed') return deps.announce()
      // A reconnect came in between: what was revoked is not what would be removed.
    }
  }
}
