import { setTimeout as sleep } from 'node:timers/promises'
import { realmOf } from '@integration-host/shared/contracts/realm'
import type { Logger } from '@integration-host/shared/observability/logger'
import type { Erase } from './erasure.ts'
import { ABORTED, type StoreRetry } from '../worker/store-retry.ts'

/**
 * The key id in the action log for erasures that the removal of a credential has caused. No service key can have this
 * id.
 */
const KEY_ID = 'coordinator:credential-removed'

const RETRY_MS = 30_000

export interface RealmErasureDeps {
  readonly erase: Erase
  /** Removes what is stored about the company itself. */
  readonly forget: (realm: string) => Promise<void>
  readonly retryStore: StoreRetry
  readonly shutdown: AbortSignal
  readonly log: Logger
}

/**
 * Returns a function that erases the runs of a company whose credential was removed. The function resolves with false
 * if a shutdown has interrupted the erasure; the event is then delivered again.
 */
export function createRealmErasure(deps: RealmErasureDeps) {
  const { erase, retryStore, shutdown, log } = deps
  return async (credential: string): Promise<boolean> => {
    const scope = { Realm: realmOf(credential), Process: null }
    const reason = `${credential} was removed with erase=true`
    const act = { by: { keyId: KEY_ID, person: null }, reason }
    for (;;) {
      const result = await retryStore(async () => {
        await deps.forget(scope.Realm)
        return erase(scope, act, shutdown)
      }, shutdown).catch((error: unknown) => {
        log.error({ err: error, credential }, 'erasing the runs of a removed company failed')
        return null
      })
      if (result === ABORTED) return false
      if (result === null) {
        // The delivery stays unsettled until a retry succeeds. It is not requeued, because the broker drops a message
        // that is requeued too often.
        await sleep(RETRY_MS, null, { signal: shutdown }).catch(() => {})
        if (shutdown.aborted) return false
        continue
      }
      const { erased, files, filesLeft, more, notEnded } = result
      if (more && shutdown.aborted) return false
      if (!more && filesLeft + notEnded === 0)
        log.info({ credential, erased, files }, 'erased the runs of a removed company')
      else
        log.warn(
          { credential, erased, files, filesLeft, more, notEnded },
          'runs of a removed company keep their data; cancel its unfinished runs, then send POST /erasures',
        )
      return true
    }
  }
}
