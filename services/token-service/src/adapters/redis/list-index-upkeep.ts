/**
 * Completes the index of states and classes (list-index.ts) after each start.
 *
 * After an upgrade, the index lacks the credentials that earlier releases stored. During an upgrade, replicas of the
 * earlier release still change records without changing the index, so index entries become outdated. After its start,
 * each upgraded replica corrects the entries that have become outdated so far.
 *
 * Only one replica at a time completes the index. The progress is not stored. If the process dies, the next start
 * examines all credentials again and skips those whose index entries are correct.
 */
import { randomUUID } from 'node:crypto'
import { setTimeout } from 'node:timers/promises'
import { credentialStates, Fault } from '@integration-host/shared/contracts/credential'
import { parseJsonAs } from '@integration-host/shared/json'
import { summaryOf } from '../../credential/credential-record.ts'
import { faultClasses } from '../../credential/fault.ts'
import { define, type StoreCommands } from './commands.ts'
import { release } from './credential-leases.ts'
import { KEYS, keysOf } from './key-names.ts'
import { classSet, LIST_STATE, listedSets, stateSet } from './list-index.ts'

const PAGE = 500
/** The pause between two pages, in milliseconds, so that other commands are not delayed. */
const PAUSE_MS = 10
/** The duration of the lease for completing the index, in milliseconds. Each page renews the lease. */
const LEASE_MS = 30_000
const FIELDS = ['Name', 'Version', 'Fault', 'ExpiryNotice', 'Listed'] as const

// Acquires or extends the lease that a replica needs to complete the index.
const acquireIndex = define(
  'acquireIndex',
  ['lease'],
  `
local holder = redis.call('GET', K.lease)
if holder and holder ~= a.owner then return 0 end
redis.call('SET', K.lease, a.owner, 'PX', a.leaseMs)
return 1
`,
)

// Corrects the index entries of a credential, unless its record was changed after the caller read it.
const relist = define(
  'relist',
  ['credential', 'index'],
  `
if redis.call('HGET', K.credential, 'Version') ~= a.version then return end
if (redis.call('HGET', K.credential, 'Fault') or '') ~= a.fault then return end
${LIST_STATE}
`,
)

// Removes a name from a set unless the field `Listed` of its record names this set.
const unlist = define(
  'unlist',
  ['credential', 'index'],
  `
local listed = redis.call('HGET', K.credential, 'Listed') or ''
if not string.find(' ' .. listed .. ' ', ' ' .. a.set .. ' ', 1, true) then
  redis.call('ZREM', K.index .. a.set, a.name)
end
`,
)

/**
 * Resolves with `true` when the index is complete, and with `false` if another replica is completing it or if `signal`
 * was aborted.
 *
 * @throws {IntegrationError} `store_unavailable`.
 */
export async function completeIndex(
  { redis, using, script, pipelined }: StoreCommands,
  signal: AbortSignal,
): Promise<boolean> {
  const owner = randomUUID()
  const isOwner = async (): Promise<boolean> =>
    (await script(
      acquireIndex,
      { lease: KEYS.indexLease },
      { owner, leaseMs: String(LEASE_MS) },
    )) === 1

  /**
   * Calls `visit` with the names of a sorted set, page by page. Resolves with `false` if `signal` was aborted or the
   * lease was lost.
   */
  async function pages(
    key: string,
    visit: (names: readonly string[]) => Promise<void>,
  ): Promise<boolean> {
    for (let from = '-'; ;) {
      if (signal.aborted || !(await isOwner())) return false
      const names = await using(() => redis.zrangebylex(key, from, '+', 'LIMIT', 0, PAGE))
      await visit(names)
      if (names.length < PAGE) return true
      from = `(${names.at(-1)}`
      await setTimeout(PAUSE_MS)
    }
  }

  async function correct(names: readonly string[]): Promise<void> {
    const batch = redis.pipeline()
    for (const name of names) batch.hmget(name, ...FIELDS)
    const records = (await pipelined(batch)) as (string | null)[][]
    for (const [index, [found, version, fault, notice, listed]] of records.entries()) {
      const name = names[index] ?? ''
      // Either the credential was removed, or its stored fault was not written by token-service. In both cases, this
      // function does not change the index entries of the credential.
      if (!found || (fault && parseJsonAs(Fault, fault) === null)) continue
      const summary = summaryOf({ Fault: fault ?? '', ExpiryNotice: notice ?? '' })
      const wanted = listedSets(summary)
      if (wanted === (listed ?? '')) continue
      // If another process changed the record after the read above, that process has also corrected the index. The
      // script then writes nothing.
      await script(relist, keysOf(name), {
        name,
        version: version ?? '',
        fault: fault ?? '',
        listed: wanted,
      })
    }
  }

  const dropStale =
    (set: string) =>
    async (names: readonly string[]): Promise<void> => {
      for (const name of names) await script(unlist, keysOf(name), { name, set })
    }

  try {
    if (!(await pages(KEYS.names, correct))) return false
    for (const set of [
      ...credentialStates.map(stateSet),
      ...Object.keys(faultClasses).map(classSet),
    ])
      if (!(await pages(KEYS.index + set, dropStale(set)))) return false
    await using(() => redis.set(KEYS.indexBuilt, '1'))
    return true
  } finally {
    await script(release, { lease: KEYS.indexLease }, { holder: owner })
  }
}
