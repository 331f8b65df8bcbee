import type { KeyRing } from '@integration-host/shared/secrets/envelope'
import type { Redis } from 'ioredis'

const BATCH = 1_000
const HOUR_MS = 3_600_000

/**
 * The data in which a copy differs from the first realm: fields of the copy's record, and the copy's entries in sorted
 * sets (with score 0).
 */
export interface Variation {
  readonly fields: Readonly<Record<string, string>>
  readonly members: readonly (readonly [key: string, member: string])[]
}

/** Returns the name of the credential with the number `n`. */
// Realm ids are always strings, because a number of sixteen digits can exceed `Number.MAX_SAFE_INTEGER`.
export const nameOf = (n: number): string => `ACC-93414530${String(n).padStart(8, '0')}`

/**
 * Stores the realms `from` to `to` as copies of the first realm, which the service itself has stored. Encrypted
 * fields are encrypted again, because the ciphertext is bound to the credential name. Each index that contains the
 * first realm gets an entry for each copy. The due times are spread over an hour.
 */
export async function copyFirstRecord(
  store: Redis,
  ring: KeyRing,
  from: number,
  to: number,
  vary: (n: number, name: string) => Variation = () => ({ fields: {}, members: [] }),
): Promise<void> {
  const first = nameOf(0)
  const fields = await store.hgetall(first)
  const version = Number(fields['Version'])
  const secrets = Object.entries(fields)
    .filter(([, value]) => value.startsWith(`1.${ring.activeKeyId}.`))
    .map(([field, value]) => ({ field, text: ring.open(value, { name: first, field, version }) }))
  const indexes: { readonly key: string; readonly score: number }[] = []
  for (const key of await store.keys('credentials:*')) {
    if ((await store.type(key)) !== 'zset') continue
    const score = await store.zscore(key, first)
    if (score !== null) indexes.push({ key, score: Number(score) })
  }

  for (let start = from; start < to; start += BATCH) {
    const batch = store.pipeline()
    for (let n = start; n < Math.min(to, start + BATCH); n += 1) {
      const name = nameOf(n)
      const sealed = secrets.map(
        ({ field, text }) => [field, ring.seal(text, { name, field, version })] as const,
      )
      const own = { Name: name, Environment: name.slice('ACC-'.length) }
      const variation = vary(n, name)
      batch.hset(name, { ...fields, ...own, ...Object.fromEntries(sealed), ...variation.fields })
      for (const { key, score } of indexes) {
        batch.zadd(key, score === 0 ? 0 : score + (n % HOUR_MS), name)
      }
      for (const [key, member] of variation.members) batch.zadd(key, 0, member)
    }
    await batch.exec()
  }
}
