/**
 * The writes of the credential store as Lua scripts, each of which Redis executes atomically. The port,
 * credential/credential-store.ts, specifies what each script does.
 *
 * A script declares the names of its keys. It gets the keys as the table `K`, and through KEYS, so that the driver can
 * add a key prefix. Its arguments are one JSON object, which Lua reads as the table `a`:
 *
 * - Numbers are passed as text, because cjson decodes every number to a double, and Lua converts doubles from 1e14 on
 *   to text with an exponent. Versions and fencing tokens are also compared with stored text.
 * - An absent value is left out of the object and is `nil` in Lua. A `null` would become `cjson.null`, which counts as
 *   true in a condition.
 * - An outbox entry is passed as JSON text and stored without being decoded, because cjson would encode an empty
 *   array as an empty object.
 *
 * `commit` and `put` must succeed when Redis has reached `maxmemory`, because the provider has already rotated the
 * token and the new token pair is stored nowhere else. With the policy `noeviction` Redis rejects commands that need
 * memory (OOM). Redis makes an exception for a script that has already executed a write command, because aborting the
 * script would leave its writes incomplete. So the first write of both scripts is HDEL, which needs no memory and is
 * never rejected. HDEL must stay the first write; out-of-memory.integration.test.ts fails otherwise.
 *
 * WAIT covers only writes of its own connection (replicated-writes.ts). So the scripts that `replicated` runs
 * (commands.ts) execute a write command on every path whose outcome is final for the caller. If nothing has to change,
 * the script writes a stored value once more with HSET. `commit` also does this when it reports a newer version or no
 * credential. The server may be a primary that was cut off, and a failover would then undo the reported change.
 */
import type { Redis } from 'ioredis'
import { intentScripts } from './intent-scripts.ts'
import { leaseScripts } from './lease-scripts.ts'
import { listScripts } from './list-scripts.ts'
import { outboxScripts } from './outbox-scripts.ts'
import { recordScripts } from './record-scripts.ts'

/** The arguments of a script: strings, booleans and lists. Keys are passed separately. */
export type ScriptArguments = Readonly<
  Record<string, string | boolean | readonly string[] | readonly string[][] | undefined>
>

const scripts = {
  ...leaseScripts,
  ...intentScripts,
  ...recordScripts,
  ...outboxScripts,
  ...listScripts,
}

export type ScriptName = keyof typeof scripts
/** The names of a script's keys. */
export type KeyOf<Name extends ScriptName> = (typeof scripts)[Name]['keys'][number]
export type RunScript = <Name extends ScriptName>(
  name: Name,
  keys: Readonly<Record<KeyOf<Name>, string>>,
  args: ScriptArguments,
) => Promise<unknown>

/**
 * Registers the scripts with a connection. The driver sends each script once, and calls it by its digest afterwards.
 */
export function defineScripts(redis: Redis): RunScript {
  for (const [name, { keys, lua }] of Object.entries(scripts)) {
    redis.defineCommand(`credential:${name}`, { numberOfKeys: keys.length, lua })
  }
  // The type of the connection lacks the commands that defineCommand adds.
  const commands = redis as unknown as Record<string, (...args: string[]) => Promise<unknown>>
  return async (name, keys, args) => {
    const named: Readonly<Record<string, string>> = keys
    const inOrder = scripts[name].keys.map((key) => named[key] ?? '')
    return commands[`credential:${name}`]?.(...inOrder, encoded(args))
  }
}

/**
 * Encodes the arguments of a script as JSON. Unpaired surrogates, which an import may contain, are replaced, because
 * cjson rejects them.
 */
const encoded = (args: ScriptArguments): string =>
  JSON.stringify(args, (_, value: unknown) =>
    typeof value === 'string' ? value.toWellFormed() : value,
  )
