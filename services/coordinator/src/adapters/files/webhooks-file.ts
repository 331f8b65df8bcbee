import {
  MAX_FAULTS,
  openListFile,
  type ReadFile,
  type ParsedList,
} from '@integration-host/shared/files/list-file'
import type { Health } from '@integration-host/shared/observability/health'
import type { Logger } from '@integration-host/shared/observability/logger'
import type { Metrics } from '@integration-host/shared/observability/metrics'
import { z } from 'zod'
import { parseReceivers, type Receiver } from '../../webhook/receivers.ts'
import { isPrivateLiteral } from '../http/private-addresses.ts'

/** The setting `WEBHOOKS_ALLOWED_HOSTS`: host names and addresses, separated by commas and without ports. */
export const allowedHosts = () =>
  z
    .string()
    .transform((list) => list.split(',').map((host) => host.trim().toLowerCase()))
    .pipe(z.array(z.string().regex(/^[a-z0-9._:-]{1,253}$/, 'must be a comma list of host names')))
    .transform((hosts): ReadonlySet<string> => new Set(hosts))

interface Settings {
  readonly WEBHOOKS_FILE?: ReadFile | undefined
  readonly WEBHOOKS_ALLOWED_HOSTS?: ReadonlySet<string> | undefined
}

const parse = (
  text: string,
  { WEBHOOKS_ALLOWED_HOSTS = new Set() }: Settings,
): ParsedList<Receiver> =>
  parseReceivers(text, { allowedHosts: WEBHOOKS_ALLOWED_HOSTS, isPrivateLiteral })

/** Returns one line for each fault of the webhooks file; an empty list if `WEBHOOKS_FILE` is unset. */
export const webhookFaults = (settings: Settings): readonly string[] =>
  settings.WEBHOOKS_FILE === undefined
    ? []
    : parse(settings.WEBHOOKS_FILE.text, settings)
        .faults.slice(0, MAX_FAULTS)
        .map((fault) => `WEBHOOKS_FILE: ${fault}`)

export interface OpenedReceivers extends Disposable {
  /** The receivers of the last valid file. */
  readonly current: () => readonly Receiver[]
}

/** Reads the receivers from a valid file and reloads them when the file changes; `null` if `WEBHOOKS_FILE` is unset. */
export function openReceivers(
  settings: Settings,
  deps: { readonly logger: Logger; readonly health: Health; readonly metrics: Metrics },
): OpenedReceivers | null {
  if (settings.WEBHOOKS_FILE === undefined) return null
  let receivers: readonly Receiver[] = []
  const file = openListFile(
    settings.WEBHOOKS_FILE,
    {
      setting: 'WEBHOOKS_FILE',
      parse: (text) => parse(text, settings),
      onList: (list) => {
        receivers = list
      },
    },
    deps,
  )
  return { current: () => receivers, [Symbol.dispose]: () => file[Symbol.dispose]() }
}
