import type { EngineName } from './engine.ts'

/** A server in which an engine stores its state. */
export type Backend = 'postgres' | 'rabbitmq' | 'redis' | 'redis-always' | 'restate'

/** A measured configuration: one row of the printed tables. */
export interface Entry {
  readonly name: string
  readonly engine: EngineName
  readonly variant?: string
  readonly backends: readonly Backend[]
  /**
   * Maximum number of transactions in flight. If each step has its own queue, the maximum applies to each queue. The
   * value was the fastest of 16, 64, 128, 192, 256, 400 and 600 in measurements with `--concurrency`.
   */
  readonly concurrency: number
  /** Number of transactions in a round, chosen so that a round takes about five seconds. */
  readonly transactions: number
  readonly isOurs: boolean
  /** Whether a single transaction waits for the event of its completion, instead of the response (`Prefer: wait`). */
  readonly byEvents?: boolean
  /** The number of coordinators; 1 if absent. All transactions are queued at the first one. */
  readonly replicas?: number
  /** Whether the coordinator encrypts payloads (`PAYLOAD_KEYS`). */
  readonly hasPayloadKeys?: boolean
  /** The folder of another checkout of this repository. If present, the coordinator of that checkout is measured. */
  readonly checkout?: string
}

const ours = { engine: 'coordinator', backends: ['postgres', 'rabbitmq'], isOurs: true } as const
const peer = { isOurs: false } as const

export const entries: readonly Entry[] = [
  {
    ...ours,
    name: 'coordinator, a message per step',
    variant: 'message',
    concurrency: 400,
    transactions: 8_000,
  },
  {
    ...ours,
    name: 'coordinator, inline',
    variant: 'inline',
    concurrency: 600,
    transactions: 12_000,
  },
  {
    ...ours,
    name: 'coordinator, inline, by events',
    variant: 'inline',
    byEvents: true,
    concurrency: 600,
    transactions: 12_000,
  },
  {
    ...peer,
    name: 'BullMQ, a queue per step',
    engine: 'bullmq',
    variant: 'queue-per-step',
    backends: ['redis'],
    concurrency: 400,
    transactions: 4_000,
  },
  {
    ...peer,
    name: 'BullMQ, a queue per step, AOF always',
    engine: 'bullmq',
    variant: 'queue-per-step',
    backends: ['redis-always'],
    concurrency: 128,
    transactions: 4_000,
  },
  {
    ...peer,
    name: 'BullMQ, one job',
    engine: 'bullmq',
    variant: 'one-job',
    backends: ['redis'],
    concurrency: 128,
    transactions: 6_000,
  },
  {
    ...peer,
    name: 'BullMQ, one job, AOF always',
    engine: 'bullmq',
    variant: 'one-job',
    backends: ['redis-always'],
    concurrency: 192,
    transactions: 6_000,
  },
  {
    ...peer,
    name: 'pg-boss',
    engine: 'pg-boss',
    backends: ['postgres'],
    concurrency: 400,
    transactions: 6_000,
  },
  {
    ...peer,
    name: 'Restate',
    engine: 'restate',
    backends: ['restate'],
    concurrency: 192,
    transactions: 3_000,
  },
  {
    ...peer,
    name: 'graphile-worker',
    engine: 'graphile-worker',
    backends: ['postgres'],
    concurrency: 192,
    transactions: 2_000,
  },
  {
    ...peer,
    name: 'DBOS',
    engine: 'dbos',
    backends: ['postgres'],
    concurrency: 64,
    transactions: 1_000,
  },
  {
    ...peer,
    name: 'four commits',
    engine: 'commits',
    backends: ['postgres'],
    concurrency: 400,
    transactions: 12_000,
  },
  {
    ...peer,
    name: 'five commits, one message',
    engine: 'messages',
    variant: 'inline',
    backends: ['postgres', 'rabbitmq'],
    concurrency: 600,
    transactions: 12_000,
  },
  {
    ...peer,
    name: 'the same rows, nothing else',
    engine: 'same-rows',
    backends: ['postgres', 'rabbitmq'],
    concurrency: 600,
    transactions: 12_000,
  },
  {
    ...peer,
    name: 'the same statements, no calls, no messages',
    engine: 'same-rows',
    variant: 'statements',
    backends: ['postgres', 'rabbitmq'],
    concurrency: 600,
    transactions: 12_000,
  },
  {
    ...peer,
    name: 'seven commits, three messages',
    engine: 'messages',
    backends: ['postgres', 'rabbitmq'],
    concurrency: 400,
    transactions: 8_000,
  },
  {
    ...peer,
    name: 'no durability',
    engine: 'none',
    backends: [],
    concurrency: 192,
    transactions: 12_000,
  },
]
