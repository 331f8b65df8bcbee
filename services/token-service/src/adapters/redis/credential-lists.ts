/**
 * Lists and counts credentials with the sorted sets of list-index.ts.
 *
 * A page is read from the smallest set that contains all credentials of the list. The set is read in batches until the
 * page is full or `SCAN_MS` have passed. A script checks the remaining conditions. All conditions are checked again on
 * the decrypted record, because another release or another program may have left an outdated entry in a set.
 */
import {
  type CredentialState,
  credentialStates,
} from '@integration-host/shared/contracts/credential'
import { IntegrationError } from '@integration-host/shared/errors'
import type { CredentialSummary } from '../../credential/credential.ts'
import type { CredentialStore } from '../../credential/credential-store.ts'
import { faultClasses } from '../../credential/fault.ts'
import {
  allNames,
  type CredentialFilter,
  intersection,
  isListed,
  type NameRange,
} from '../../credential/listing.ts'
import { define, type ScriptArguments, type StoreCommands } from './commands.ts'
import { KEYS } from './key-names.ts'
import { classSet, LABELS, prefixRanges, stateSet, tagSet } from './list-index.ts'

/**
 * The maximum time of the search for one page, in milliseconds. After this time, the page may have fewer entries than
 * requested.
 */
const SCAN_MS = 20
/**
 * The maximum number of entries that one script call examines. Such a call delays other commands by about a
 * millisecond.
 */
const MAX_CHUNK = 2_000
/**
 * The estimated cost of searching for a text in the label of one entry, if the set contains only names and the label
 * must be read separately. An entry of the set `labels` contains the label, so its cost is 1.
 */
const LABEL_LOOKUP_COST = 4

// Examines the entries of a set within a range. Returns the names that fulfil the conditions, and the last name that
// was examined. If the range has no further entries, an empty string is returned in place of the last name.
const search = define(
  'search',
  ['names', 'index'],
  `
local function isIn(set, name)
  return redis.call('ZSCORE', set == 'names' and K.names or K.index .. set, name)
end
local function isInSets(name)
  for _, set in ipairs(a.without) do
    if isIn(set, name) then return false end
  end
  for _, group in ipairs(a.within) do
    local found = false
    for _, set in ipairs(group) do
      if isIn(set, name) then
        found = true
        break
      end
    end
    if not found then return false end
  end
  return true
end
local function hasText(name)
  local lower = string.lower(name)
  if a.text == '' or string.sub(lower, 1, #a.text) == a.text or
    string.sub(lower, 5, 4 + #a.text) == a.text then return true end
  local entry = redis.call('ZRANGEBYLEX', K.index .. 'labels',
    '[' .. name .. ' ', '(' .. name .. '!', 'LIMIT', 0, 1)[1]
  return entry and string.find(entry, a.text, #name + 2, true)
end
local entries = redis.call('ZRANGEBYLEX', a.set == 'names' and K.names or K.index .. a.set,
  a.from, a.to, 'LIMIT', 0, a.chunk)
local isLabels = a.set == 'labels'
local found = {}
local last = ''
for _, entry in ipairs(entries) do
  last = entry
  local isFound
  if isLabels then
    local space = string.find(entry, ' ', 1, true)
    last = string.sub(entry, 1, space - 1)
    isFound = string.find(entry, a.text, space + 1, true) and isInSets(last)
  else
    isFound = isInSets(last) and hasText(last)
  end
  if isFound then
    found[#found + 1] = last
    if #found == tonumber(a.limit) then return {found, last} end
  end
end
if #entries < tonumber(a.chunk) then last = '' end
return {found, last}
`,
)

const NAMES = 'names'
const indexedStates = credentialStates.filter((state) => state !== 'active')

/** A part of a sorted set. A page of a list is read from one or several parts. */
interface Source {
  readonly set: string
  readonly range: NameRange
}

type ListMethods = Pick<CredentialStore, 'find' | 'summary'>

/**
 * Returns the methods that list and count. `readSummaries` reads the records of the given names, and omits removed
 * credentials.
 */
export function createRedisLists(
  { redis, using, script, pipelined }: StoreCommands,
  readSummaries: (names: readonly string[]) => Promise<readonly CredentialSummary[]>,
): ListMethods {
  const keyOf = (set: string): string => (set === NAMES ? KEYS.names : KEYS.index + set)
  const isBuilt = async (): Promise<boolean> =>
    (await using(() => redis.exists(KEYS.indexBuilt))) === 1

  /**
   * Returns one group of index sets for each condition. A credential that fulfils the condition is in at least one set
   * of the group.
   */
  function groupsOf({ states, classes, tags }: CredentialFilter, hasStates: boolean): string[][] {
    return [
      ...(hasStates && states.length > 0 && !states.includes('active')
        ? [states.map(stateSet)]
        : []),
      ...(hasStates && classes.length > 0 ? [classes.map(classSet)] : []),
      ...tags.map(([name, value]) => [tagSet(name, value)]),
    ]
  }

  /**
   * Chooses the cheapest way to read a list. Returns the parts of sets to read (`sources`), and the groups of sets in
   * which their entries must also be found (`within`).
   */
  async function planOf(
    text: string,
    groups: readonly string[][],
  ): Promise<{ readonly sources: readonly Source[]; readonly within: readonly string[][] }> {
    const whole = (set: string): Source => ({ set, range: allNames })
    const plans = groups.map((group) => ({
      sources: group.map(whole),
      within: groups.filter((other) => other !== group),
      // The entries of these sets are only names, so the label of each entry has to be read separately.
      cost: text === '' ? 1 : LABEL_LOOKUP_COST,
    }))
    const prefixes = prefixRanges(text).map((range) => ({ set: NAMES, range }))
    const all = text === '' ? [whole(NAMES)] : [whole(LABELS), ...prefixes]
    plans.push({ sources: all, within: [...groups], cost: 1 })
    const costs = await Promise.all(
      plans.map(async ({ sources, cost }) =>
        plans.length === 1 ? 0 : cost * (await sizeOf(sources)),
      ),
    )
    const cheapest = plans[costs.indexOf(Math.min(...costs))]
    return cheapest ?? { sources: all, within: groups }
  }

  async function sizeOf(sources: readonly Source[]): Promise<number> {
    const batch = redis.pipeline()
    for (const { set, range } of sources) batch.zlexcount(keyOf(set), ...lexRange(set, range, ''))
    const sizes = (await pipelined(batch)) as number[]
    return sizes.reduce((sum, size) => sum + size, 0)
  }

  /**
   * Examines the next entries of each part of a set. Returns at most `limit` matching names in order. `end` is the name
   * up to which all parts were examined; `null` if no part has further entries.
   */
  async function scan(
    sources: readonly Source[],
    from: string,
    limit: number,
    chunk: number,
    conditions: ScriptArguments,
  ): Promise<{ readonly names: readonly string[]; readonly end: string | null }> {
    const scans = await Promise.all(
      sources.map(async ({ set, range }) => {
        const [lower, upper] = lexRange(set, range, from)
        const limits = { chunk: String(chunk), limit: String(limit) }
        const args = { ...conditions, ...limits, set, from: lower, to: upper }
        return (await script(search, KEYS, args)) as [found: string[], last: string]
      }),
    )
    // Each part was examined up to a different name, so the list is complete only up to the smallest of these names.
    const ends = scans.map(([, last]) => last).filter((last) => last !== '')
    const end = ends.length === 0 ? null : ends.reduce((a, b) => (a < b ? a : b))
    const names = [...new Set(scans.flatMap(([found]) => found))]
      .filter((name) => end === null || name <= end)
      .toSorted((a, b) => (a < b ? -1 : 1))
    return names.length < limit
      ? { names, end }
      : { names: names.slice(0, limit), end: names[limit - 1] ?? null }
  }

  return {
    async find({ after, limit, filter }) {
      const hasStates = await isBuilt()
      const { states, text, ranges } = filter
      const groups = groupsOf(filter, hasStates)
      const isActiveListed = hasStates && states.includes('active')
      const unlisted = isActiveListed ? indexedStates.filter((one) => !states.includes(one)) : []
      const { sources, within } = await planOf(text, groups)
      const conditions = { within, without: unlisted.map(stateSet), text }
      const items: CredentialSummary[] = []
      const deadline = performance.now() + SCAN_MS
      let chunk = limit
      for (const range of ranges) {
        const parts = sources.flatMap(({ set, range: whole }) => {
          const common = intersection(whole, range)
          return common === null ? [] : [{ set, range: common }]
        })
        for (let from: string | null = after; from !== null && from < range.last;) {
          const { names, end } = await scan(parts, from, limit - items.length, chunk, conditions)
          chunk = Math.min(4 * chunk, MAX_CHUNK)
          const read = await readSummaries(names)
          items.push(...read.filter((credential) => isListed(credential, filter)))
          from = end
          const isDone = items.length === limit || performance.now() >= deadline
          if (isDone) return { items, next: from ?? (range === ranges.at(-1) ? null : range.last) }
        }
      }
      return { items, next: null }
    },

    async summary(ranges) {
      if (!(await isBuilt())) throw notBuilt()
      const classes = Object.keys(faultClasses)
      const sets = [NAMES, ...indexedStates.map(stateSet), ...classes.map(classSet)]
      const sizes = new Map(
        await Promise.all(
          sets.map(
            async (set) => [set, await sizeOf(ranges.map((range) => ({ set, range })))] as const,
          ),
        ),
      )
      const size = (set: string): number => sizes.get(set) ?? 0
      const faulty = indexedStates.reduce((sum, state) => sum + size(stateSet(state)), 0)
      const total = size(NAMES)
      const states = Object.fromEntries(
        credentialStates.map((state) => [
          state,
          // The sizes of the sets are read one after the other, so `faulty` may briefly be greater than `total`.
          state === 'active' ? Math.max(0, total - faulty) : size(stateSet(state)),
        ]),
      ) as Record<CredentialState, number>
      const present = classes.map((one) => [one, size(classSet(one))] as const)
      return {
        total,
        states,
        classes: Object.fromEntries(present.filter(([, count]) => count > 0)),
      }
    },
  }
}

/** Returns the bounds by which ZRANGEBYLEX and ZLEXCOUNT select the entries of a range after the name `after`. */
function lexRange(set: string, { first, last }: NameRange, after: string): [string, string] {
  // An entry of `labels` is a name, a space and text. `!` is the character that sorts directly after the space.
  const end = set === LABELS ? '!' : ''
  return [after >= first && after !== '' ? `(${after}${end}` : `[${first}`, `[${last}${end}`]
}

const notBuilt = (): IntegrationError =>
  new IntegrationError('store_unavailable', 'the numbers are being counted for the first time', {
    retryAfterSeconds: 5,
  })
