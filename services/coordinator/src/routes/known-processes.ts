import type { Caller } from '@integration-host/shared/access/caller'
import { hasCode, IntegrationError } from '@integration-host/shared/errors'
import type { Context } from 'hono'
import { problemResponse } from '@integration-host/shared/http/problem'

const MAX_NAMES = 10

/**
 * Returns a function that adds the names of loaded processes to the response for an unknown process, because the
 * requested name is often only misspelled. It adds only processes that the key may use.
 */
export const respondWithKnownProcesses =
  (processes: ReadonlyMap<string, unknown>) =>
  (c: Context, error: unknown): Response => {
    if (!hasCode(error, 'process_not_found')) return problemResponse(c, error)
    const caller = c.get('caller') as Caller | undefined
    const names = [...processes.keys()].filter((name) => caller?.mayUseProcess(name))
    return problemResponse(
      c,
      new IntegrationError(error.code, `${error.message}; ${loaded(names)}`, { cause: error }),
    )
  }

function loaded(names: readonly string[]): string {
  if (names.length === 0) return 'no process that this key may use is loaded'
  const others = names.length - MAX_NAMES
  return `loaded: ${names.slice(0, MAX_NAMES).join(', ')}${others > 0 ? ` and ${others} more` : ''}`
}
