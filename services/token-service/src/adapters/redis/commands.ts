/** Sends commands and scripts to the Redis of the credential store, and maps errors of the driver. */
import type { Redis } from 'ioredis'
import { IntegrationError } from '@integration-host/shared/errors'
import { DecryptionError } from '@integration-host/shared/secrets/envelope'
import { defineScripts, type RunScript } from './scripts.ts'

/** Every function throws `IntegrationError` `store_unavailable` if Redis did not execute the command. */
export interface StoreCommands {
  readonly redis: Redis
  /** Runs `call`, a function that sends commands with `redis`. */
  readonly using: <T>(call: () => Promise<T>) => Promise<T>
  readonly script: RunScript
  /** Sends several commands in one round trip; resolves with their replies in order. */
  pipelined(commands: ReturnType<Redis['pipeline']>): Promise<readonly unknown[]>
}

/** `ensureUsable` throws while the store must not be used. */
export function createStoreCommands(redis: Redis, ensureUsable: () => void): StoreCommands {
  const runScript = defineScripts(redis)

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
