/**
 * The process in which BullMQ runs flows: a queue of parents and a queue of children, each with its own worker, as each step
 * of the coordinator has its own queue. `bench/children.ts` starts this process and sends the shapes over IPC.
 */
import { FlowProducer, Worker } from 'bullmq'

/** How many parents there are, and how many children each of them has. */
export interface Shape {
  readonly parents: number
  readonly children: number
}

export interface Measured {
  /** The time from the request that queues the parents until the last child has ended. */
  readonly seconds: number
  /** For each parent, the time from the end of its last child until its own step begins. */
  readonly wakesMs: readonly number[]
}

const [, , redisUrl = '', concurrency = '64'] = process.argv
const { hostname, port } = new URL(redisUrl)
const connection = {
  host: hostname,
  port: Number(port),
  maxRetriesPerRequest: null,
  enableAutoPipelining: true,
}
const options = {
  connection,
  concurrency: Number(concurrency),
  removeOnComplete: { count: 5_000 },
}
const flows = new FlowProducer({ connection })
/** When the last child of each parent has ended. */
const endedAt = new Map<string, number>()
const wakesMs: number[] = []
let allHaveEnded = () => {}
let left = 0

new Worker<{ parent: string }>('children', async () => 1, options).on('completed', (job) => {
  const { parent } = job.data
  endedAt.set(parent, Math.max(endedAt.get(parent) ?? 0, job.finishedOn ?? 0))
})
new Worker('parents', async () => 1, options).on('completed', ({ id = '', processedOn }) => {
  wakesMs.push((processedOn ?? Number.NaN) - (endedAt.get(id) ?? Number.NaN))
  left -= 1
  if (left === 0) allHaveEnded()
})

process.on('disconnect', () => process.exit())
process.on('message', ({ parents, children }: Shape) => {
  void (async () => {
    const ended = new Promise<void>((resolve) => (allHaveEnded = resolve))
    left = parents
    endedAt.clear()
    wakesMs.length = 0
    const startedAt = Date.now()
    await flows.addBulk(
      Array.from({ length: parents }, () => {
        const parent = crypto.randomUUID()
        return {
          name: 'parent',
          queueName: 'parents',
          opts: { jobId: parent },
          children: Array.from({ length: children }, (_, n) => ({
            name: 'child',
            queueName: 'children',
            data: { parent },
            opts: { jobId: `${parent}-${n}` },
          })),
        }
      }),
    )
    await ended
    const lastMs = Math.max(...endedAt.values())
    process.send?.({ seconds: (lastMs - startedAt) / 1_000, wakesMs } satisfies Measured)
  })()
})
process.send?.('ready')
