/** The queues that the coordinator's processes need, and the policies in deploy/definitions.json. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import {
  changesTopology,
  credentialsTopology,
  ladder,
  processTopology,
  startTopology,
  webhooksTopology,
  signalKey,
} from '@integration-host/shared/contracts/topology'
import {
  changesQueue,
  onQueue,
  entriesQueue,
} from '@integration-host/shared/contracts/provider-event'
import { WEBHOOK_PROCESS } from '@integration-host/shared/contracts/events'
import { queueArguments } from '@integration-host/shared/messaging/rabbitmq/messages'
import { z } from 'zod'

export interface WantedQueue {
  /** The name of the queue, including the prefix AMQP_PREFIX. */
  readonly name: string
  readonly arguments: Readonly<Record<string, string | number | boolean>>
}

export interface ProcessOutline {
  readonly Process: string
  readonly Steps: readonly string[]
  /**
   * The routing keys of the events that start a run of the process, from the provider (`intuit.…`) or about entries
   * (`entry.…`). A coordinator of an earlier version does not report this member; the list is then empty.
   */
  readonly On: readonly string[]
  /** The routing keys of the provider events that may end waits of runs of the process, as for `On`. */
  readonly Watches: readonly string[]
  /** The events for which runs of the process may wait, as for `On`. */
  readonly Events: readonly string[]
  /** Whether the process is built in. Clients cannot start runs of a built-in process. */
  readonly BuiltIn: boolean
}

const isEntryKey = (key: string): boolean => key.startsWith('entry.')

export const wantedQueues = (
  processes: readonly ProcessOutline[],
  prefix: string,
): readonly WantedQueue[] =>
  [
    ladder,
    credentialsTopology,
    ...(processes.some(({ Process }) => Process === WEBHOOK_PROCESS) ? [webhooksTopology] : []),
    ...processes.map(({ Process, Steps }) => processTopology(Process, Steps)),
    ...processes.filter(({ BuiltIn }) => !BuiltIn).map(({ Process }) => startTopology(Process)),
    ...processes
      .filter(({ Events }) => Events.length > 0)
      .map(({ Process }) => startTopology(Process, signalKey(Process))),
    ...processes.flatMap(({ Process, On, Watches }) => {
      const entries = On.filter(isEntryKey)
      const changes = On.filter((key) => !isEntryKey(key))
      return [
        { queue: onQueue(Process), keys: changes },
        { queue: changesQueue(Process), keys: Watches },
        { queue: entriesQueue(Process), keys: entries },
      ].flatMap(({ queue, keys }) =>
        keys.length > 0 ? [changesTopology(queue, Process, keys)] : [],
      )
    }),
  ]
    .flatMap(({ queues }) => queues)
    .map((queue) => ({ name: prefix + queue.name, arguments: queueArguments(queue, prefix) }))

const Definitions = z.object({
  policies: z.array(
    z.object({
      name: z.string(),
      pattern: z.string(),
      definition: z.record(z.string(), z.union([z.string(), z.number()])),
    }),
  ),
})
export type ShippedPolicy = z.output<typeof Definitions>['policies'][number]

/** The path of the shipped definitions, relative to the root of the checkout. */
export const DEFINITIONS = 'deploy/definitions.json'

export const shippedPolicies = (): readonly ShippedPolicy[] =>
  Definitions.parse(
    JSON.parse(readFileSync(join(import.meta.dirname, '../../../..', DEFINITIONS), 'utf8')),
  ).policies

/** Returns one text for each setting whose values in `there` and `wanted` differ. */
export const differences = (
  there: Readonly<Record<string, unknown>>,
  wanted: Readonly<Record<string, unknown>>,
): string[] =>
  [...new Set([...Object.keys(wanted), ...Object.keys(there)])]
    .filter((key) => there[key] !== wanted[key])
    .map((key) => `${key} is ${shown(there[key])}, needs ${shown(wanted[key])}`)

const shown = (value: unknown): string =>
  value === undefined ? 'not set' : typeof value === 'string' ? value : JSON.stringify(value)
