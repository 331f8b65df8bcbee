/**
 * Reports a write as successful only after Redis replicas have acknowledged it.
 *
 * Redis replicates asynchronously, so a failover loses the writes that no replica has received. Each write is
 * therefore followed by the command WAIT (`WAIT n <ms>`). Its reply is the number of replicas that have received all
 * earlier writes of the same connection.
 *
 * - The writes use a second connection, because WAIT blocks its connection until the replicas respond.
 * - One WAIT covers many writes: the writes that arrive while a WAIT is in flight form the next batch.
 * - A write and its WAIT must reach the same server. A batch fails if the connection was lost in between.
 * - WAIT covers only writes of its own connection. It would not cover a repeated commit that writes nothing. Each
 *   script on this connection therefore executes a write command on every path that reports success.
 * - If too few replicas acknowledge, the server may be a primary that was cut off. Both connections are then opened
 *   again, because their address may lead to another server by now. If one of the two connections is lost, the other
 *   one is opened again as well.
 *
 * If no replica is required, writes use the main connection without WAIT.
 */
import type { Redis } from 'ioredis'
import { batched } from '@integration-host/shared/batching'
import { IntegrationError } from '@integration-host/shared/errors'
import type { RedisConnection } from '@integration-host/shared/redis/connection'

/** How long replicas may take to acknowledge a batch, in milliseconds. */
const WAIT_MS = 1_000
/** The minimum time between two reconnects because of missing acknowledgements, in milliseconds. */
const RECONNECT_INTERVAL_MS = 5_000

/**
 * The error for a write that fewer replicas than required have acknowledged. The write was executed, and may still be
 * replicated.
 */
export class TooFewReplicas extends IntegrationError {
  constructor() {
    super('store_unavailable', 'fewer replicas than REDIS_REPLICAS acknowledged a write', {
      retryAfterSeconds: 1,
    })
  }
}

export interface ReplicatedWrites extends AsyncDisposable {
  /** The number of replicas that must acknowledge a write; 0 if writes do not wait for replicas. */
  replicas(): Promise<number>
  /**
   * Calls `write` with a connection, and resolves with its result when enough replicas have acknowledged the write. If
   * too few replicas acknowledge the write, calls `undo` with the result, and then rejects with {@link TooFewReplicas}.
   */
  run<T>(
    write: (redis: Redis) => Promise<T>,
    undo?: (redis: Redis, result: T) => Promise<unknown>,
  ): Promise<T>
}

export interface ReplicatedWritesOptions {
  /** The main connection to Redis. */
  readonly redis: Redis
  /**
   * The setting `REDIS_REPLICAS`. If `undefined`, the server setting `min-replicas-to-write` applies and is read again
   * on each reconnect.
   */
  readonly setting: number | undefined
  /** Opens the second connection. Called at most once, and only if replicas are required. */
  readonly connect: () => RedisConnection
}

interface Write {
  /** How many replicas must acknowledge the write. */
  readonly needed: number
  readonly send: (redis: Redis) => Promise<unknown>
  readonly undo: (redis: Redis, result: never) => Promise<unknown>
}

export function createReplicatedWrites(options: ReplicatedWritesOptions): ReplicatedWrites {
  const { redis, setting, connect } = options
  const opened = new AsyncDisposableStack()
  let required: Promise<number> | null = setting === undefined ? null : Promise.resolve(setting)
  let second: Promise<Redis> | null = null
  let losses = 0
  let mayReconnectAt = 0

  function replicas(): Promise<number> {
    required ??= minReplicasToWrite(redis).catch((error: unknown) => {
      required = null
      throw error
    })
    return required
  }
  opened.defer(
    onLoss(redis, () => {
      if (setting === undefined) required = null
    }),
  )

  /** Opens the second connection. Resolves when it is established, or when the first attempt to connect has failed. */
  async function open(): Promise<Redis> {
    const connection = opened.use(connect()).redis
    opened.defer(
      onLoss(connection, () => {
        losses += 1
        reopen(redis)
      }),
    )
    opened.defer(onLoss(redis, () => reopen(connection)))
    await new Promise<void>((resolve) => {
      for (const event of ['ready', 'close', 'end'] as const) connection.once(event, resolve)
    })
    return connection
  }

  const sendBatch = batched<Write, PromiseSettledResult<unknown>>(
    async (writes) => {
      const connection = await (second ??= open())
      const lossesBefore = losses
      const settled = await Promise.allSettled(writes.map(({ send }) => send(connection)))
      if (settled.every(({ status }) => status === 'rejected')) return settled
      const needed = Math.max(...writes.map((write) => write.needed))
      // WAIT is sent only after the replies to the writes. If Redis does not know a script (NOSCRIPT), the driver sends
      // the script a second time. An earlier WAIT would not cover the writes of that script.
      const acknowledged = await connection.wait(needed, WAIT_MS).catch(errorOf)
      const isSameConnection = losses === lossesBefore
      const isEnough = typeof acknowledged === 'number' && acknowledged >= needed
      if (isEnough && isSameConnection) return settled
      if (isSameConnection)
        await Promise.allSettled(
          settled.map(async (one, index) => {
            if (one.status === 'fulfilled')
              await writes[index]?.undo(connection, one.value as never)
          }),
        )
      if (typeof acknowledged === 'number' && performance.now() >= mayReconnectAt) {
        mayReconnectAt = performance.now() + RECONNECT_INTERVAL_MS
        reopen(connection) // The loss of this connection also reopens the main connection.
      }
      const reason = typeof acknowledged === 'number' ? new TooFewReplicas() : acknowledged
      return settled.map((one) =>
        one.status === 'rejected' ? one : ({ status: 'rejected', reason } as const),
      )
    },
    { retries: false },
  )

  return {
    replicas,
    async run<T>(
      write: (redis: Redis) => Promise<T>,
      undo: (redis: Redis, result: T) => Promise<unknown> = async () => {},
    ): Promise<T> {
      const needed = await replicas()
      if (needed === 0) return write(redis)
      const settled = await sendBatch({ needed, send: write, undo })
      if (settled.status === 'rejected') throw settled.reason
      return settled.value as T
    },
    [Symbol.asyncDispose]: () => opened.disposeAsync(),
  }
}

const errorOf = (error: unknown): Error =>
  error instanceof Error ? error : new Error('WAIT failed', { cause: error })

/** Closes a connection, which the driver then opens again. */
function reopen(redis: Redis): void {
  if (redis.status === 'ready') redis.disconnect(true)
}

/**
 * Calls `listener` when an established connection is lost, but not when an attempt to connect fails. Returns a function
 * that removes the listener.
 */
function onLoss(redis: Redis, listener: () => void): () => void {
  let isEstablished = redis.status === 'ready'
  const onReady = (): void => {
    isEstablished = true
  }
  const onClose = (): void => {
    if (isEstablished) listener()
    isEstablished = false
  }
  redis.on('ready', onReady)
  redis.on('close', onClose)
  return () => {
    redis.off('ready', onReady)
    redis.off('close', onClose)
  }
}

/** Reads how many replicas the server itself requires for a write; 0 if this account may not read settings. */
async function minReplicasToWrite(redis: Redis): Promise<number> {
  try {
    const [, value] = await redis.config('GET', 'min-replicas-to-write')
    return Number(value ?? 0)
  } catch (error) {
    // Redis sends an error reply if the ACL user lacks `config|get` or if a managed service has no CONFIG.
    if (error instanceof Error && error.name === 'ReplyError') return 0
    throw error
  }
}
