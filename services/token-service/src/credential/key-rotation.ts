/**
 * Seals every stored credential with the active key, while it is read and refreshed: each record is replaced
 * only as it was read, and whoever writes one meanwhile seals it with the active key anyway.
 */
import type { KeyRotationProgress } from '@integration-host/shared/contracts/custody'
import type { CredentialStore } from './credential-store.ts'

export interface KeyRotationDeps {
  readonly store: Pick<CredentialStore, 'list' | 'counts' | 'reseal' | 'retireKeys' | 'record'>
  readonly activeKeyId: string
  readonly now: () => number
  readonly notifyOutbox: () => void
}

export type RotateKeys = (who: string, signal: AbortSignal) => AsyncGenerator<KeyRotationProgress>

const PAGE = 500
const FIRST_REFUSED = 10
/** Beyond these somebody goes on sealing with the old key: it is not free, and nobody waits for ever. */
const MOST_PASSES = 5
/** Credentials under way at a time. */
const AT_A_TIME = 50

/**
 * The function tells its progress page by page; the last one `IsFinished`. Keys retire only when all
 * credentials opened. It throws `store_unavailable`; what was done until then stays done.
 */
export function createKeyRotation({
  store,
  activeKeyId,
  now,
  notifyOutbox,
}: KeyRotationDeps): RotateKeys {
  return async function* rotate(who, signal) {
    const { stored: Total } = await store.counts()
    const firstRefused: string[] = []
    const counts = { resealed: 0, current: 0, refused: 0, absent: 0 }
    const progress = (
      isFinished: boolean,
      retired: readonly string[] = [],
    ): KeyRotationProgress => ({
      ActiveKey: activeKeyId,
      Total,
      Resealed: counts.resealed,
      Current: counts.current,
      Refused: counts.refused,
      FirstRefused: firstRefused,
      IsFinished: isFinished,
      RetiredKeys: [...retired],
    })
    // A replica that has the new key second still seals with the old one: passes until one finds nothing.
    let found = -1
    for (let pass = 1; found !== 0 && pass <= MOST_PASSES; pass += 1) {
      found = 0
      counts.refused = 0
      firstRefused.length = 0
      for (let after = '', isLast = false; !isLast;) {
        const names = (await store.list({ after, limit: PAGE })).map(({ name }) => name)
        for (let start = 0; start < names.length; start += AT_A_TIME) {
          await Promise.all(
            names.slice(start, start + AT_A_TIME).map(async (name) => {
              const outcome = await store.reseal(name)
              if (outcome === 'resealed') found += 1
              if (outcome !== 'current' || pass === 1) counts[outcome] += 1
              if (outcome === 'refused' && firstRefused.length < FIRST_REFUSED)
                firstRefused.push(name)
            }),
          )
        }
        if (signal.aborted) return
        after = names.at(-1) ?? ''
        isLast = names.length < PAGE
        if (!isLast) yield progress(false)
      }
    }
    const isDone = found === 0 && counts.refused === 0
    const retired = isDone ? await store.retireKeys() : []
    await store.record([
      {
        At: new Date(now()).toISOString(),
        Who: who,
        What: 'keys_rotated',
        Name: '',
        Version: 0,
        Outcome: isDone
          ? 'ok'
          : `${counts.refused} refused, ${found} sealed with an old key meanwhile`,
        ...(counts.resealed > 0 && { Count: counts.resealed }),
      },
    ])
    notifyOutbox()
    yield progress(true, retired)
  }
}
