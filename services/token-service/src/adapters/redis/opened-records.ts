/**
 * Opens credential records, and decrypts a record only if it has changed since it was last opened. A token request
 * reads a whole record, which has rarely changed since the previous request. Decrypting it each time would take about a
 * tenth of the processor time of a token request (bench/token-handout.ts).
 */
import type { KeyRing } from '@integration-host/shared/secrets/envelope'
import { openCredential, type StoredFields } from '../../credential/credential-record.ts'
import type { Credential } from '../../credential/credential.ts'

/** The maximum number of opened records in memory. Above this number, the record that was opened first is dropped. */
const MAX_REMEMBERED = 5_000

/** The values of a record's fields, in a fixed order; `null` for an absent field. */
export type FieldValues = readonly (string | null)[]

/**
 * Returns a function that opens the record of `name`. The function throws {@link DecryptionError} for the same records
 * for which `openCredential` throws it. `fieldsOf` maps the values to fields, and returns `null` if there is no record.
 */
export function createRecordOpener(
  keys: KeyRing,
  fieldsOf: (values: FieldValues) => StoredFields | null,
): (name: string, values: FieldValues) => Credential | null {
  const opened = new Map<
    string,
    { readonly values: FieldValues; readonly credential: Credential }
  >()
  return (name, values) => {
    const known = opened.get(name)
    if (known?.values.every((value, index) => value === values[index])) return known.credential
    opened.delete(name)
    const fields = fieldsOf(values)
    if (fields === null) return null
    const credential = openCredential(keys, name, fields)
    opened.set(name, { values, credential })
    const [first] = opened.keys()
    if (opened.size > MAX_REMEMBERED && first !== undefined) opened.delete(first)
    return credential
  }
}
