import type { Redis } from 'ioredis'
import type { KeyRing } from '../src/secrets/envelope.ts'

const SECRET_FIELDS = ['Authenticator', 'RefreshToken', 'StoreA', 'Previous']

/**
 * Changes plain fields of a stored credential, for example its `Expiry`. The envelopes of the credential may
 * authenticate these fields as labels. Therefore the secrets are sealed again without labels.
 */
export async function changeRecord(
  redis: Redis,
  keys: KeyRing,
  name: string,
  changes: Readonly<Record<string, string>>,
): Promise<void> {
  const fields = await redis.hgetall(name)
  const version = Number(fields['Version'])
  const secrets = SECRET_FIELDS.filter((field) => fields[field]).map((field) => {
    const place = { name, field, version }
    return [field, keys.seal(keys.open(fields[field] ?? '', place), place)]
  })
  await redis.hset(name, { ...(Object.fromEntries(secrets) as Record<string, string>), ...changes })
}

/**
 * Returns the fields of a credential whose access token has a lifetime of one hour and expires in `ms` milliseconds.
 */
export const expiringIn = (
  ms: number,
): { readonly Expiry: string; readonly RefreshedAt: string } => ({
  Expiry: new Date(Date.now() + ms).toISOString(),
  RefreshedAt: new Date(Date.now() + ms - 3_600_000).toISOString(),
})
