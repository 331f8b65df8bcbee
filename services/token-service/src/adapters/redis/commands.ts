/** Sends commands and scripts to the Redis of the credential store, and maps errors of the driver. */
import type { Redis } from 'ioredis'
import { IntegrationError } from '@integration-host/shared/errors'
import { DecryptionError } from '@integration-host/shared/secrets/envelope'
import type { ReplicatedWrites } from './replicated-writes.ts'
import {
  defineScripts,
  type KeyOf,
  type RunScript,
  type ScriptArguments,
  type ScriptName,
} from './scripts.ts'

/** Every function throws `IntegrationError` `store_unavailable` if Redis did not execute the command. */
export interface StoreCommands {
  readonly redis: Redis
  /** Runs `call`, a function that sends commands with `redis`. */
  readonly using: <T>(call: () => Promise<T>) => Promise<T>
  readonly script: RunScript
  /**
   * Runs a script, and resolves when enough replicas have acknowledged its writes (replicated-writes.ts). If too few
   * replicas acknowledge them, calls `undo` and then rejects. `undo` gets the reply of the script and a function that
   * runs scripts.
   */
  readonly replicated: <Name extends ScriptName>(
    name: Name,
    keys: Readonly<Record<KeyOf<Name>, string>>,
    args: ScriptArguments,
    undo?: (reply: unknown, script: RunScript) => Promise<unknown>,
  ) => Promise<unknown>
  /** Sends several commands in one round trip; resolves with their replies in order. */
  readonly pipelined: (commands: ReturnType<Redis['pipeline']>) => Promise<readonly unknown[]>
}

/**
 * Returns the functions that send commands to the store. `ensureUsable` is called before each command. It throws while
 * the store must not be used.
 */
export function createStoreCommands(
  redis: Redis,
  writes: ReplicatedWrites,
  ensureUsable: () => void,
): StoreCommands {
  /** For each connection, the function that runs scripts on it. Scripts are registered once per connection. */
  const runners = new Map<Redis, RunScript>()
  const runnerOf = (connection: Redis): RunScript => {
    const known = runners.get(connection) ?? defineScripts(connection)
    runners.set(connection, known)
    return known
  }
  const runScript = runnerOf(redis)

  async function using<T>(call: () => Promise<T>): Promise<T> {
    ensureUsable()
    try {
      return await call()
    } catch (error) {
      if (error instanceof IntegrationError || error instanceof DecryptionError) throw error
      throw unavailable(error)
    }
  }
  return {
    redis,
    using,
    script: (name, scriptKeys, args) => using(() => runScript(name, scriptKeys, args)),
    replicated: (name, scriptKeys, args, undo) =>
      using(() =>
        writes.run(
          (connection) => runnerOf(connection)(name, scriptKeys, args),
          async (connection, reply) => undo?.(reply, runnerOf(connection)),
        ),
      ),
    async pipelined(commands) {
      const replies = (await using(() => commands.exec())) ?? []
      return replies.map(([error, reply]) => {
        if (error !== null) throw unavailable(error)
        return reply
      })
    },
  }
}

const unavailable = (cause: unknown): IntegrationError =>
  new IntegrationError('store_unavailable', 'the credential store is not available', {
    cause,
    retryAfterSeconds: 1,
  })
