import { MAX_FAULTS, openListFile, type ReadFile, readableFile } from '../files/list-file.ts'
import type { Health } from '../observability/health.ts'
import type { Logger } from '../observability/logger.ts'
import type { Metrics } from '../observability/metrics.ts'
import type { Secret } from '../secrets/secret.ts'
import { AccessKeys } from './access-keys.ts'
import { parseKeyList } from './key-list.ts'

/**
 * The setting `SERVICE_KEYS_FILE`: the path of a valid key file. If the file is not valid, the error names this
 * setting.
 */
export const keyFile = () =>
  readableFile().superRefine(({ text }, context) => {
    for (const message of parseKeyList(text).faults.slice(0, MAX_FAULTS))
      context.addIssue({ code: 'custom', message })
  })

interface Settings {
  readonly SERVICE_API_KEY: readonly Secret[]
  readonly SERVICE_KEYS_FILE?: ReadFile | undefined
}

export interface OpenedAccessKeys extends Disposable {
  readonly keys: AccessKeys
}

/**
 * Loads the keys of a service from its settings and its key file. Changes of the key file take effect without a
 * restart.
 */
export function openAccessKeys(
  { SERVICE_API_KEY, SERVICE_KEYS_FILE }: Settings,
  deps: { readonly logger: Logger; readonly health: Health; readonly metrics: Metrics },
): OpenedAccessKeys {
  const keys = new AccessKeys(SERVICE_API_KEY)
  if (SERVICE_KEYS_FILE === undefined) return { keys, [Symbol.dispose]: () => {} }
  const file = openListFile(
    SERVICE_KEYS_FILE,
    {
      setting: 'SERVICE_KEYS_FILE',
      parse: parseKeyList,
      onList: (list) => keys.replaceList(list),
    },
    deps,
  )
  return { keys, [Symbol.dispose]: () => file[Symbol.dispose]() }
}
