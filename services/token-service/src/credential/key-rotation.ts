/**
 * Re-encrypts every stored credential with the active key while the service runs. A record is replaced only if it has
 * not changed since it was read; a changed record was already written with the active key.
 */
import type { KeyRotationProgress } from '@integration-host/shared/contracts/custody'
import type { CustodyDeps } from './custody-deps.ts'

export type RotateKeys = (who: string, signal: AbortSignal) => AsyncGenerator<KeyRotationProgress>

const PAGE = 500
const MAX_NAMED = 10
/**
 * The maximum number of passes over all records. If the last pass still finds records with an old key, a replica of
 * token-service keeps encrypting with this key. The key can then not be retired.
 */
const MAX_PASSES = 5
/** The number of credentials that are re-encrypted at the same time. */
const CONCURRENCY = 50

/**
 * Returns a function that re-encrypts all credentials. It yields its progress after each page, and the last value has
 * `IsFinished`. Old keys are retired only if every credential could be decrypted. If the function throws
 * `store_unavailable`, some records are already re-encrypted, and the others are unchanged.
 */
export function createKeyRotation({
  store,
  activeKeyId,
  now,
  notifyOutbox,
}: Pick<CustodyDeps, 'store' | 'now' | 'notifyOutbox'> & {
  readonly activeKeyId: string
}): RotateKeys {
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
    // A replica may still use the old key as its active key and write records with it. The pass over all records is
    // therefore repeated until it finds no record with an old key.
    let found = -1
    for (let pass = 1; found !== 0 && pass <= MAX_PASSES; pass += 1) {
      found = 0
      counts.refused = 0
      firstRefused.length = 0
      for (let after = '', isLast = false; !isLast;) {
        const names = (await store.list({ after, limit: PAGE })).map(({ name }) => name)
        for (let start = 0; start < names.length; start += CONCURRENCY) {
          await Promise.all(
            names.slice(start, start + CONCURRENCY).map(async (name) => {
              const outcome = await store.reseal(name)
              if (outcome === 'resealed') found += 1
              if (outcome !== 'current' || pass === 1) counts[outcome] += 1
              if (outcome === 'refused' && firstRefused.length < MAX_NAMED) firstRefused.push(name)
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
