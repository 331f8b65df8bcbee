/**
 * The sorted sets by which credentials are listed (`credentials:index:<set>`). All members have score 0, so they are
 * sorted by their text, which begins with the credential name. The scripts that write a record also write its entries
 * in these sets.
 *
 * - `state:<state>` and `class:<class>`: each member is a credential name. The field `Listed` of a record names the
 *   sets of these two kinds that contain the credential. There is no set for the state `active`, because nearly all
 *   credentials have this state: a credential that is in no `state:` set is active.
 * - `tag:<name>:<value>`: each member is a credential name.
 * - `labels`: each member is `<credential name> <folded label and company name>`. A space sorts before every character of a name, so the
 *   entries are in the order of the names.
 */
import { realmOf } from '@integration-host/shared/contracts/realm'
import { type CredentialSummary, stateOf } from '../../credential/credential.ts'
import type { Labels } from '../../credential/labels.ts'
import { type NameRange, namesFrom, searchedNames } from '../../credential/listing.ts'

export const LABELS = 'labels'
export const stateSet = (state: string): string => `state:${state}`
export const classSet = (faultClass: string): string => `class:${faultClass}`
export const tagSet = (name: string, value: string): string => `tag:${name}:${value}`

/**
 * Returns the value of the field `Listed`: the sets of states and classes that contain a credential, separated by
 * spaces.
 */
export function listedSets(
  credential: Pick<CredentialSummary, 'fault' | 'expiryNoticeDays'>,
): string {
  const state = stateOf(credential)
  const { Code } = credential.fault ?? {}
  const sets = [...(state === 'active' ? [] : [stateSet(state)]), ...(Code ? [classSet(Code)] : [])]
  return sets.join(' ')
}

/** Returns the index entries for a label and tags, as a flat list in which each set is followed by its member. */
export function labelEntries(name: string, labels: Labels): readonly string[] {
  const names = searchedNames(labels)
  return [
    ...Object.entries(labels.tags).flatMap(([key, value]) => [tagSet(key, value), name]),
    ...(names === '' ? [] : [LABELS, `${name} ${names}`]),
  ]
}

/**
 * The number of letters at the beginning of a text that are searched in upper and lower case. Each further letter would
 * double the number of ranges.
 */
const CASED_LETTERS = 2

/**
 * Returns ranges that contain every name that matches `text`. A name matches if it or its realm begins with the folded
 * `text`. Stored names contain upper and lower case, so the ranges cover both cases of the first letters. The ranges
 * may also contain names that do not match.
 */
export function prefixRanges(text: string): readonly NameRange[] {
  if (!/^[a-z0-9_-]+$/.test(text)) return []
  const start = 'ACC-'
  const foldedStart = start.toLowerCase()
  if (foldedStart.startsWith(text)) return [namesFrom(start)]
  const realms = [text, ...(text.startsWith(foldedStart) ? [realmOf(text)] : [])]
  return realms.flatMap((realm) => casesOf(realm)).map((realm) => namesFrom(start + realm))
}

function casesOf(text: string): readonly string[] {
  let prefixes = ['']
  let letters = 0
  for (const character of text) {
    const isLetter = /[a-z]/.test(character)
    if (isLetter && letters === CASED_LETTERS) break
    if (isLetter) letters += 1
    const cases = isLetter ? [character.toUpperCase(), character] : [character]
    prefixes = prefixes.flatMap((prefix) => cases.map((one) => prefix + one))
  }
  return prefixes
}

/**
 * Lua: moves a credential to the sets of its current state and class. `a.listed` is the new value of the field `Listed`
 * (`listedSets`).
 */
export const LIST_STATE = `
local listed = redis.call('HGET', K.credential, 'Listed') or ''
if listed ~= a.listed then
  for set in string.gmatch(listed, '%S+') do redis.call('ZREM', K.index .. set, a.name) end
  for set in string.gmatch(a.listed, '%S+') do redis.call('ZADD', K.index .. set, 0, a.name) end
  redis.call('HSET', K.credential, 'Listed', a.listed)
end
`

/**
 * Lua: changes the index entries of a label and tags. `a.unindexed` and `a.indexed` are flat lists in which each set is
 * followed by its member.
 */
export const INDEX_LABELS = `
for i = 1, #a.unindexed, 2 do redis.call('ZREM', K.index .. a.unindexed[i], a.unindexed[i + 1]) end
for i = 1, #a.indexed, 2 do redis.call('ZADD', K.index .. a.indexed[i], 0, a.indexed[i + 1]) end
`
