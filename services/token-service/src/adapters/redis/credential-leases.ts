/**
 * The Redis commands that decide which process may send a refresh token. A refresh needs the lease of the credential
 * and stores an intent before it sends the token (refresh.ts). An adoption needs a claim (adoption.ts).
 */
import type { KeyRing } from '@integration-host/shared/secrets/envelope'
import {
  intentOf,
  openCredential,
  openGrantSecrets,
  type StoredFields,
} from '../../credential/credential-record.ts'
import type { CredentialStore, Lease } from '../../credential/credential-store.ts'
import { define, type StoreCommands } from './commands.ts'
import { keysOf } from './key-names.ts'

/** Lua: sets `ms` to the epoch milliseconds of the Redis server. */
const NOW_MS = `
local time = redis.call('TIME')
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
`

/**
 * Lua: sets `fence` to the next fencing token, which is greater than every earlier token of this credential. A failover
 * may lose the newest tokens together with their leases. The next token is therefore at least the server's time in
 * epoch milliseconds, so that a new lease cannot get the token of a lost lease.
 */
export const NEXT_FENCE = `${NOW_MS}
local last = tonumber(redis.call('HGET', K.credential, 'Fence') or '0')
local fence = math.max(redis.call('INCR', K.fence), last + 1, ms)
redis.call('SET', K.fence, fence)
`

/** Lua: deletes the lease if the caller still holds it. */
export const RELEASE_OWN_LEASE = `
if redis.call('GET', K.lease) == a.holder then redis.call('DEL', K.lease) end
`

const acquire = define(
  'acquire',
  ['credential', 'lease', 'fence', 'removed'],
  `
if redis.call('EXISTS', K.credential) == 0 then
  return {'absent', redis.call('HGET', K.removed, a.name) or ''}
end
if redis.call('EXISTS', K.lease) == 1 then return {'busy'} end
${NEXT_FENCE}
redis.call('SET', K.lease, a.owner .. ':' .. string.format('%.0f', fence), 'PX', a.leaseMs)
redis.call('HSET', K.credential, 'Fence', fence)
return {'acquired', fence, ms, redis.call('HGETALL', K.credential)}
`,
)

const renew = define(
  'renew',
  ['lease'],
  `
if redis.call('GET', K.lease) ~= a.holder then return 0 end
return redis.call('PEXPIRE', K.lease, a.leaseMs)
`,
)

export const release = define('release', ['lease'], RELEASE_OWN_LEASE)

// The claim of another process is respected until the request of that process can no longer be in flight.
const claimAdoption = define(
  'claimAdoption',
  ['adoption'],
  `
local own = a.owner .. ' ' .. a.id
local claim = redis.call('GET', K.adoption) or ''
local at, holder = string.match(claim, '^(%d+) (.*)$')
${NOW_MS}
if holder and holder ~= own and ms - tonumber(at) < tonumber(a.holdMs) then
  return {'busy', tonumber(a.holdMs) - (ms - tonumber(at))}
end
redis.call('SET', K.adoption, string.format('%.0f', ms) .. ' ' .. own, 'PX', a.keepMs)
return {'claimed', claim}
`,
)

const endAdoption = define(
  'endAdoption',
  ['adoption'],
  `
local holder = string.match(redis.call('GET', K.adoption) or '', '^%d+ (.*)$')
if holder == a.owner .. ' ' .. a.id then redis.call('DEL', K.adoption) end
`,
)

/**
 * Lua: sets the variables `server` and `changedAt`. The variable `ms` must be set (NOW_MS).
 *
 * `server` is the run id of this Redis server; empty if the Redis account may not run INFO. Every server has its own
 * run id, and a restarted server has a new one. `changedAt` is the time at which a script first ran on this server, in
 * epoch milliseconds by the clock of this server; `false` if scripts never ran on another server.
 */
const OBSERVE_SERVER = `
local info = redis.pcall('INFO', 'server')
local server = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or ''
local observed = redis.call('HMGET', K.server, 'RunId', 'ChangedAt')
local changedAt = observed[2]
if server ~= '' and observed[1] ~= server then
  local change = {'RunId', server}
  if observed[1] then
    changedAt = string.format('%.0f', ms)
    change = {'RunId', server, 'ChangedAt', changedAt}
  end
  -- A new primary without replicas may reject this write. The next call then finds the change again and stores it.
  redis.pcall('HSET', K.server, unpack(change))
end
`

/**
 * Stores the intent with the run id of the server. A later call on another server thus detects the failover, even if
 * the calling process has just started or the clocks of the servers differ.
 *
 * Two failovers may lead back to the server that stored the intent. The run ids are then equal, but the time of the
 * intent is before `changedAt`. Both times are from the clock of this server. An intent without a run id was stored by
 * an earlier release, or while the Redis account could not run INFO. Such an intent counts as stored after the last
 * failover, so it is replaced at once.
 */
const recordIntent = define(
  'recordIntent',
  ['credential', 'lease', 'server'],
  `
if redis.call('GET', K.lease) ~= a.holder then return {'lost'} end
local now = redis.call('HMGET', K.credential, 'Fence', 'Version', 'Intent')
if now[1] ~= a.fence or now[2] ~= a.version then return {'lost'} end
${NOW_MS}
${OBSERVE_SERVER}
local previous = now[3] or ''
local version, fence, at, place = string.match(previous, '^(%d+):(%d+):(%d+):(%w+)$')
if version == a.version and fence ~= a.fence and server ~= '' and changedAt then
  local isEarlier = place ~= server or tonumber(at) < tonumber(changedAt)
  local left = changedAt + a.deferralMs - ms
  -- If the clock of this server was set back, the age of the failover is unknown.
  if isEarlier and ms >= tonumber(changedAt) and left > 0 then return {'deferred', left} end
end
local intent = {a.version, a.fence, string.format('%.0f', ms), server}
redis.call('HSET', K.credential, 'Intent', table.concat(intent, ':'))
return {'recorded', previous}
`,
)

export const observeServer = define(
  'observeServer',
  ['server'],
  `
${NOW_MS}
${OBSERVE_SERVER}
return changedAt
`,
)

// Restores the intent that was stored before `recordIntent` was called. The earlier intent must not be lost, because
// its process may have sent the refresh token. Also releases the lease, because the refresh has failed.
const withdrawIntent = define(
  'withdrawIntent',
  ['credential', 'lease'],
  `
local own = a.version .. ':' .. a.fence .. ':'
local intent = redis.call('HGET', K.credential, 'Intent') or ''
if string.sub(intent, 1, #own) == own then
  if a.previous == '' then redis.call('HDEL', K.credential, 'Intent')
  else redis.call('HSET', K.credential, 'Intent', a.previous) end
end
${RELEASE_OWN_LEASE}
`,
)

/**
 * How long the claim of an adoption (adoption.ts) is kept if the outcome of its last token request is unknown, in
 * milliseconds.
 */
const ADOPTION_KEEP_MS = 24 * 3_600_000

type LeaseMethods = Pick<
  CredentialStore,
  'acquire' | 'renew' | 'release' | 'recordIntent' | 'claimAdoption' | 'endAdoption'
>

/** Returns the methods for leases, intents and claims. `keys` decrypts the credential record that `acquire` returns. */
export function createRedisLeases(
  { script, replicated }: StoreCommands,
  keys: KeyRing,
): LeaseMethods {
  return {
    async acquire(name, owner, leaseMs) {
      const args = { name, owner, leaseMs: String(leaseMs) }
      const reply = (await script(acquire, keysOf(name), args)) as
        | ['absent', string]
        | ['busy']
        | ['acquired', number, number, string[]]
      if (reply[0] === 'absent')
        return { kind: 'absent', removedVersion: reply[1] === '' ? null : Number(reply[1]) }
      if (reply[0] === 'busy') return { kind: 'busy' }
      const [, fence, storeNow, pairs] = reply
      const fields = pairsToFields(pairs)
      const grantId = fields['PutId'] ?? ''
      const lease: Lease = { name, owner, fence, version: Number(fields['Version']), grantId }
      try {
        return {
          kind: 'acquired',
          leased: {
            lease,
            credential: openCredential(keys, name, fields),
            ...openGrantSecrets(keys, name, fields),
            intent: intentOf(fields, storeNow),
          },
        }
      } catch (error) {
        // A record that cannot be decrypted is left unchanged. The lease is released, so that the next caller gets the
        // same error without waiting for the expiry of the lease.
        await script(release, keysOf(name), { holder: holder(lease) })
        throw error
      }
    },

    async renew(lease, leaseMs) {
      const args = { holder: holder(lease), leaseMs: String(leaseMs) }
      return (await script(renew, keysOf(lease.name), args)) === 1
    },

    async release(lease) {
      await script(release, keysOf(lease.name), { holder: holder(lease) })
    },

    async recordIntent(lease, deferralMs) {
      const args = leaseArguments(lease)
      const reply = (await replicated(
        recordIntent,
        keysOf(lease.name),
        { ...args, deferralMs: String(deferralMs) },
        // If too few replicas acknowledge this intent, the caller does not send the refresh token. The intent is then
        // removed. Otherwise the next refresh would wait for the response to a request that was never sent.
        async (recorded, run) => {
          const [kind, previous] = recorded as IntentReply
          if (kind === 'recorded')
            await run(withdrawIntent, keysOf(lease.name), { ...args, previous })
        },
      )) as IntentReply
      return reply[0] === 'deferred'
        ? { kind: 'deferred', retryAfterMs: reply[1] }
        : { kind: reply[0] }
    },

    async claimAdoption(name, { id, owner }, holdMs) {
      const args = { id, owner }
      const reply = (await replicated(
        claimAdoption,
        keysOf(name),
        { ...args, holdMs: String(holdMs), keepMs: String(ADOPTION_KEEP_MS) },
        // If too few replicas acknowledge this claim, the caller does not send the refresh token. The claim is then
        // removed, unless it has replaced an earlier claim.
        async (claimed, run) => {
          const [, previous] = claimed as [string, string | number]
          if (previous === '') await run(endAdoption, keysOf(name), args)
        },
      )) as ['claimed', string] | ['busy', number]
      return reply[0] === 'busy'
        ? { kind: 'busy', retryAfterMs: reply[1] }
        : { kind: 'claimed', wasClaimedBefore: reply[1].endsWith(` ${id}`) }
    },

    async endAdoption(name, claim) {
      await script(endAdoption, keysOf(name), { ...claim })
    },
  }
}

/**
 * The reply of the script `recordIntent`. If the new intent was stored, the reply contains the intent that it replaced.
 * If the new intent cannot be stored yet, the reply contains the milliseconds until it can be stored.
 */
type IntentReply = ['recorded', string] | ['lost'] | ['deferred', number]

const holder = (lease: Lease): string => `${lease.owner}:${lease.fence}`

/** Returns the script arguments by which a script checks that the caller still holds the lease. */
export const leaseArguments = (lease: Lease) => ({
  name: lease.name,
  holder: holder(lease),
  fence: String(lease.fence),
  version: String(lease.version),
})

function pairsToFields(pairs: readonly string[]): StoredFields {
  const fields: Record<string, string> = {}
  for (let index = 0; index + 1 < pairs.length; index += 2) {
    fields[pairs[index] ?? ''] = pairs[index + 1] ?? ''
  }
  return fields
}
