import {
  DecryptionError,
  generateKeyRing,
  type KeyRing,
} from '@integration-host/shared/secrets/envelope'
import type { TransactionSource } from '../run/transaction-source.ts'
import { installationValues } from './installation.ts'

export interface InstallationKeyDeps {
  readonly source: Pick<TransactionSource, 'records'>
  readonly payloadKeys: KeyRing | null
}

/**
 * Reads a key that the installation generates, as the list of a key ring; generates it if there is none. It is stored as
 * the row `name` of `Order_Installation`. With `PAYLOAD_KEYS` it is encrypted with the current payload key, because it
 * must not be usable by everyone who can read a backup. If it cannot be decrypted, another key is generated.
 */
export async function readInstallationKey(
  { source, payloadKeys }: InstallationKeyDeps,
  name: string,
): Promise<string> {
  const values = installationValues<{ readonly Key: string; readonly IsSealed: boolean }>(
    source,
    '',
  )
  const place = { name, field: 'Key', version: 1 }
  const opened = (sealed: string): string => {
    try {
      return payloadKeys?.open(sealed, place) ?? ''
    } catch (error) {
      if (error instanceof DecryptionError) return ''
      throw error
    }
  }
  let list = ''
  await values.change(name, (stored) => {
    const { Key = '', IsSealed = false } = stored ?? {}
    const known = IsSealed ? opened(Key) : Key
    list = known === '' ? generateKeyRing().reveal() : known
    const isCurrent = payloadKeys === null ? !IsSealed : IsSealed && payloadKeys.isCurrent(Key)
    if (known !== '' && isCurrent) return stored
    return payloadKeys === null
      ? { Key: list, IsSealed: false }
      : { Key: payloadKeys.seal(list, place), IsSealed: true }
  })
  return list
}
