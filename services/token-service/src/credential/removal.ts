/** Removes a credential: revokes its grant at the provider, and deletes the record even if the revocation fails. */
import { DecryptionError } from '@integration-host/shared/secrets/envelope'
import { IntegrationError } from '@integration-host/shared/errors'
import type { Provider } from '../provider/provider.ts'
import { notFound, versionMoved } from './credential-store.ts'
import type { CustodyDeps } from './custody-deps.ts'
import { acquireLease } from './exclusive-lease.ts'

export interface RemovalDeps extends Pick<
  CustodyDeps,
  'store' | 'owner' | 'now' | 'sleep' | 'notifyOutbox'
> {
  readonly provider: Pick<Provider, 'revoke'>
}

/**
 * Removes a credential. A record that cannot be decrypted is removed without a revocation. With `erase`, the event of the
 * removal makes the coordinator erase the data of the company's runs. Resolves with whether the provider confirmed that
 * the grant has ended.
 *
 * Throws the errors of {@link acquireLease}, except `DecryptionError`. Also throws `version_moved` if `ifVersion` is a
 * number and another version is stored. In this case, the provider got no request, unless the company was reconnected
 * while the provider revoked the previous grant.
 */
export type RemoveCredential = (
  name: string,
  who: string,
  ifVersion: number | null,
  options: {
    readonly erase: boolean
    /** The reason that the caller has given, for the audit log. */
    readonly reason: string | undefined
  },
) => Promise<{ readonly isRevoked: boolean }>

export function createRemoval(deps: RemovalDeps): RemoveCredential {
  const { store, provider, now } = deps
  return async (name, who, ifVersion, { erase, reason }) => {
    for (;;) {
      const leased = await acquireLease(name, deps).catch((error: unknown) => {
        if (error instanceof DecryptionError) return null
        throw error
      })
      if (leased !== null && ifVersion !== null && leased.lease.version !== ifVersion) {
        await store.release(leased.lease)
        throw versionMoved(leased.credential)
      }
      // Another installation uses an exported grant, so a revocation here would end the grant there.
      const isElsewhere = leased?.credential.fault?.Code === 'transferred'
      const token = leased?.refreshToken ?? leased?.credential.accessToken ?? null
      const revoked = token !== null && !isElsewhere && (await provider.revoke(token))
      const outcome = revoked ? 'ok' : 'not revoked'
      const context = { at: now(), who, what: 'removed', outcome, erase, reason } as const
      const version = leased?.lease.version ?? ifVersion ?? undefined
      const removed = await store.remove(name, revoked, context, version)
      if (removed === 'absent') throw notFound(name)
      if (removed === 'removed') {
        deps.notifyOutbox()
        return { isRevoked: revoked }
      }
      if (leased === null && ifVersion !== null)
        throw new IntegrationError('version_moved', `${name} has another version now`)
      // The company was reconnected in the meantime, so the stored grant is not the revoked one. The removal starts
      // again.
    }
  }
}
