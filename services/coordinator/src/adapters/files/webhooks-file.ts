import { readFileSync } from 'node:fs'
import { watchFile } from '@integration-host/shared/files/watched-file'
import type { Health } from '@integration-host/shared/observability/health'
import type { Logger } from '@integration-host/shared/observability/logger'
import type { Metrics } from '@integration-host/shared/observability/metrics'
import { z } from 'zod'
import { type ParsedReceivers, parseReceivers, type Receiver } from '../../webhook/receivers.ts'
import { isPrivateLiteral } from '../http/private-addresses.ts'

/** The setting `WEBHOOKS_FILE`: the path of a readable file. `webhookFaults` checks its content. */
export const webhooksFile = () =>
  z.string().transform((path, context) => {
    try {
      return { path, text: readFileSync(path, 'utf8') }
    } catch (error) {
      const { code = 'unknown' } = error as NodeJS.ErrnoException
      context.addIssue({ code: 'custom', message: `the file cannot be read (${code})` })
      return z.NEVER
    }
  })

/** The setting `WEBHOOKS_ALLOWED_HOSTS`: a comma list of host names and addresses, without ports. */
export const allowedHosts = () =>
  z
    .string()
    .transform((list) => list.split(',').map((host) => host.trim().toLowerCase()))
    .pipe(z.array(z.string().regex(/^[a-z0-9._:-]{1,253}$/, 'must be a comma list of host names')))
    .transform((hosts): ReadonlySet<string> => new Set(hosts))

interface Settings {
  readonly WEBHOOKS_FILE?: z.output<ReturnType<typeof webhooksFile>> | undefined
  readonly WEBHOOKS_ALLOWED_HOSTS?: ReadonlySet<string> | undefined
}

const MAX_FAULTS = 50

const parse = (text: string, { WEBHOOKS_ALLOWED_HOSTS = new Set() }: Settings): ParsedReceivers =>
  parseReceivers(text, { allowedHosts: WEBHOOKS_ALLOWED_HOSTS, isPrivateLiteral })

/** Returns a line for each fault of the file; none if there is no file. */
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

/**
 * Opens the receivers of a valid file; `null` if there is no file. Its changes take effect within a second. While the
 * file is not valid, the last valid list stays in force; the log, `/health/ready` and the metric `webhooks_file_valid`
 * say so.
 */
export function openReceivers(
  settings: Settings,
  {
    logger,
    health,
    metrics,
  }: { readonly logger: Logger; readonly health: Health; readonly metrics: Metrics },
): OpenedReceivers | null {
  if (settings.WEBHOOKS_FILE === undefined) return null
  const { path, text } = settings.WEBHOOKS_FILE
  let receivers: readonly Receiver[] = []
  const dependency = health.dependency('webhooks-file', 'optional')
  const valid = metrics.gauge(
    'webhooks_file_valid',
    '1 while the file of the webhook receivers is valid, 0 while an earlier list stays in force',
  )
  const accept = (list: string): void => {
    const parsed = parse(list, settings)
    if (parsed.receivers === null) return reject(parsed.faults)
    receivers = parsed.receivers
    dependency.up()
    valid.set(1)
    logger.info({ receivers: receivers.map(({ id }) => id) }, 'webhook receivers read')
  }
  const reject = (faults: readonly string[]): void => {
    dependency.down('the file is not valid: the last valid list stays in force')
    valid.set(0)
    logger.error(
      {
        file: path,
        faults: faults.slice(0, MAX_FAULTS),
        remediation: 'correct the file; it is read again within a second',
      },
      'webhooks file is not valid: the last valid list stays in force',
    )
  }
  accept(text)
  const watch = watchFile(path, text, {
    onContent: accept,
    onUnreadable: (reason) => reject([`the file cannot be read (${reason})`]),
  })
  return { current: () => receivers, [Symbol.dispose]: () => watch[Symbol.dispose]() }
}
