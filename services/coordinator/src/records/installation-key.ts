import {
  DecryptionError,
  generateKeyRing,
  type KeyRing,
} from '@integration-host/shared/secrets/envelope'
import type { TransactionSource } from '../run/transaction-source.ts'
import { installation } from './installation.ts'
import { changeRow } from './records.ts'

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
  const rows = source.records(
    installation<{ readonly Key: string; readonly IsSealed: boolean }>(name),
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
  await changeRow(rows, [name], (row) => {
    const { Key = '', IsSealed = false } = row?.Value ?? {}
    const known = IsSealed ? opened(Key) : Key
    list = known === '' ? generateKeyRing().reveal() : known
    const isCurrent = payloadKeys === null ? !IsSealed : IsSealed && payloadKeys.isCurrent(Key)
    if (row !== undefined && known !== '' && isCurrent) return row
    const Value =
      payloadKeys === null
        ? { Key: list, IsSealed: false }
        : { Key: payloadKeys.seal(list, place), IsSealed: true }
    return { Name: name, Value }
  })
  return list
}
