import { readFileSync } from 'node:fs'
import { z } from 'zod'
import { watchFile } from '../files/watched-file.ts'
import type { Health } from '../observability/health.ts'
import type { Logger } from '../observability/logger.ts'
import type { Metrics } from '../observability/metrics.ts'
import type { Secret } from '../secrets/secret.ts'
import { AccessKeys } from './access-keys.ts'
import { parseKeyList } from './key-list.ts'

/** The setting `SERVICE_KEYS_FILE`: the path of a valid key file. Every fault of the file is a fault of the setting. */
export const keyFile = () =>
  z.string().transform((path, context) => {
    const { text, faults } = readKeyFile(path)
    for (const fault of faults.slice(0, 50)) context.addIssue({ code: 'custom', message: fault })
    return faults.length > 0 ? z.NEVER : { path, text }
  })

export type KeyFile = z.output<ReturnType<typeof keyFile>>

function readKeyFile(path: string): { readonly text: string; readonly faults: readonly string[] } {
  try {
    const text = readFileSync(path, 'utf8')
    return { text, faults: parseKeyList(text).faults }
  } catch (error) {
    const { code = 'unknown' } = error as NodeJS.ErrnoException
    return { text: '', faults: [`the file cannot be read (${code})`] }
  }
}

export interface OpenedAccessKeys extends Disposable {
  readonly keys: AccessKeys
}

/**
 * Opens the keys of a service. If there is a key file, its changes take effect within a second. While the file is not
 * valid, the last valid list stays in force; the log, `/health/ready` and the metric `service_keys_file_valid` say so.
 */
export function openAccessKeys(
  {
    SERVICE_API_KEY,
    SERVICE_KEYS_FILE,
  }: {
    readonly SERVICE_API_KEY: readonly Secret[]
    readonly SERVICE_KEYS_FILE?: KeyFile | undefined
  },
  {
    logger,
    health,
    metrics,
  }: { readonly logger: Logger; readonly health: Health; readonly metrics: Metrics },
): OpenedAccessKeys {
  const keys = new AccessKeys(SERVICE_API_KEY)
  if (SERVICE_KEYS_FILE === undefined) return { keys, [Symbol.dispose]: () => {} }
  const { path, text } = SERVICE_KEYS_FILE
  const dependency = health.dependency('service-keys-file', 'optional')
  const valid = metrics.gauge(
    'service_keys_file_valid',
    '1 while the key file is valid, 0 while an earlier list stays in force',
  )
  const accept = (list: string): void => {
    const parsed = parseKeyList(list)
    if (parsed.keys === null) return reject(parsed.faults)
    keys.replaceList(parsed.keys)
    dependency.up()
    valid.set(1)
    logger.info({ keys: parsed.keys.length }, 'service keys read')
  }
  const reject = (faults: readonly string[]): void => {
    dependency.down('the file is not valid: the last valid list stays in force')
    valid.set(0)
    logger.error(
      {
        file: path,
        faults: faults.slice(0, 50),
        remediation: 'correct the file; it is read again within a second',
      },
      'service keys file is not valid: the last valid list stays in force',
    )
  }
  accept(text)
  const watch = watchFile(path, text, {
    onContent: accept,
    onUnreadable: (reason) => reject([`the file cannot be read (${reason})`]),
  })
  return { keys, [Symbol.dispose]: () => watch[Symbol.dispose]() }
}
