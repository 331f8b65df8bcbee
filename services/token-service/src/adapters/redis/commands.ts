/**
 * Sends commands and scripts to Redis, and maps the errors of the driver.
 *
 * The writes of the credential store are Lua scripts, each of which Redis executes atomically. The port,
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
 * execute a write command on every path whose outcome is final for the caller. If nothing has to change,
 * the script writes a stored value once more with HSET. `commit` also does this when it reports a newer version or no
 * credential. The server may be a primary that was cut off, and a failover would then undo the reported change.
 */
import type { Redis } from 'ioredis'
import { IntegrationError } from '@integration-host/shared/errors'
import { DecryptionError } from '@integration-host/shared/secrets/envelope'
import type { ReplicatedWrites } from './replicated-writes.ts'

/** A Lua script with the names of its keys, in the order of KEYS. */
export interface Script<Key extends string> {
  readonly name: string
  readonly keys: readonly Key[]
  readonly lua: string
}

export const define = <Key extends string>(
  name: string,
  keys: readonly Key[],
  body: string,
): Script<Key> => ({
  name: `credential:${name}`,
  keys,
  lua: `local a = cjson.decode(ARGV[1])
local K = { ${keys.map((key, index) => `${key} = KEYS[${index + 1}]`).join(', ')} }
${body}`,
})

/** The arguments of a script: strings, booleans and lists. Keys are passed separately. */
export type ScriptArguments = Readonly<
  Record<string, string | boolean | readonly string[] | readonly string[][] | undefined>
>

export type RunScript = <Key extends string>(
  script: Script<Key>,
  keys: Readonly<Record<NoInfer<Key>, string>>,
  args: ScriptArguments,
) => Promise<unknown>

/**
 * Returns the function that runs scripts on a connection. The driver sends each script once, and calls it by its digest
 * afterwards.
 */
export function scriptsOn(redis: Redis): RunScript {
  // The type of the connection lacks the commands that defineCommand adds.
  const commands = redis as unknown as Record<string, (...args: string[]) => Promise<unknown>>
  return async ({ name, keys: names, lua }, keys, args) => {
    if (!(name in commands)) redis.defineCommand(name, { numberOfKeys: names.length, lua })
    return commands[name]?.(...names.map((key) => keys[key]), encoded(args))
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

/** Returns the error for a store that cannot be used; `store` is its name for people. */
export const unavailable = (store: string, cause?: unknown): IntegrationError =>
  new IntegrationError('store_unavailable', `the ${store} is not available`, {
    retryAfterSeconds: 1,
    ...(cause !== undefined && { cause }),
  })

/**
 * Returns the function that runs `call`, a function that sends commands. It throws `store_unavailable` if Redis did not
 * execute a command. `ensureUsable` is called before each command; it throws while the store must not be used.
 */
export const createUsing =
  (store: string, ensureUsable: () => void) =>
  async <T>(call: () => Promise<T>): Promise<T> => {
    ensureUsable()
    try {
      return await call()
    } catch (error) {
      if (error instanceof IntegrationError || error instanceof DecryptionError) throw error
      throw unavailable(store, error)
    }
  }

export const CREDENTIAL_STORE = 'credential store'

export type StoreCommands = ReturnType<typeof createStoreCommands>

/** Returns the functions that send commands to the credential store. */
export function createStoreCommands(
  redis: Redis,
  writes: ReplicatedWrites,
  ensureUsable: () => void,
) {
  const using = createUsing(CREDENTIAL_STORE, ensureUsable)
  const runScript = scriptsOn(redis)
  const script: RunScript = (...call) => using(() => runScript(...call))
  /** Sends several commands in one round trip; resolves with their replies in order. */
  async function pipelined(commands: ReturnType<Redis['pipeline']>): Promise<readonly unknown[]> {
    const replies = (await using(() => commands.exec())) ?? []
    return replies.map(([error, reply]) => {
      if (error !== null) throw unavailable(CREDENTIAL_STORE, error)
      return reply
    })
  }

  return {
    redis,
    using,
    script,
    pipelined,
    /**
     * Runs a script, and resolves when enough replicas have acknowledged its writes (replicated-writes.ts). If too few
     * replicas acknowledge them, calls `undo` and then rejects. `undo` gets the reply of the script and a function that
     * runs scripts.
     */
    replicated: <Key extends string>(
      write: Script<Key>,
      keys: Readonly<Record<NoInfer<Key>, string>>,
      args: ScriptArguments,
      undo?: (reply: unknown, script: RunScript) => Promise<unknown>,
    ): Promise<unknown> =>
      using(() =>
        writes.run(
          (connection) => scriptsOn(connection)(write, keys, args),
          async (connection, reply) => undo?.(reply, scriptsOn(connection)),
        ),
      ),
  }
}
