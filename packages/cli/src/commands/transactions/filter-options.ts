/** The options that select runs, for lists and bulk operations. */
import { RunFilter } from '@integration-host/shared/contracts/run-filter'
import { headerStatuses } from '@integration-host/shared/contracts/transaction'
import { z } from 'zod'
import { UsageError } from '../../exit-code.ts'

const several = { type: 'string', multiple: true } as const
const one = { type: 'string' } as const

export const filterOptions = {
  status: several,
  class: several,
  step: several,
  realm: several,
  'waiting-for': several,
  tag: several,
  'id-prefix': one,
  'in-doubt': { type: 'boolean' },
  since: one,
  from: one,
  until: one,
} as const

export const FILTER_HELP = `  --status STATUS     ${headerStatuses.join(', ')}
  --class CLASS       the error class, such as http_503
  --step STEP         the step that is due, or the last one
  --realm REALM       the realm id of the company
  --waiting-for NAME  the credential that the run waits for: ACC-<realm>
  --tag NAME=VALUE    a tag; several: all of them
  --id-prefix TEXT    the beginning of the id
  --in-doubt          an earlier attempt may have done the work of the step
  --since WHEN        finished, or while unfinished changed, since then: 30m, 2h, 3d or 2026-01-31T08:00:00Z
  --from WHEN         queued at this time or later
  --until WHEN        queued before this time
                      Several of --status, --class, --step, --realm and --waiting-for: any of them.`

interface FilterValues {
  readonly status?: readonly string[] | undefined
  readonly class?: readonly string[] | undefined
  readonly step?: readonly string[] | undefined
  readonly realm?: readonly string[] | undefined
  readonly 'waiting-for'?: readonly string[] | undefined
  readonly tag?: readonly string[] | undefined
  readonly 'id-prefix'?: string | undefined
  readonly 'in-doubt'?: boolean | undefined
  readonly since?: string | undefined
  readonly from?: string | undefined
  readonly until?: string | undefined
}

/** Returns the filter that the options describe, without the members that are not given. @throws {UsageError} an option is invalid. */
export function filterOf(values: FilterValues, now = Date.now()): RunFilter {
  const time = (option: 'since' | 'from' | 'until'): string | undefined =>
    values[option] === undefined ? undefined : timeOf(`--${option}`, values[option], now)
  const given = {
    status: values.status?.flatMap((text) => text.split(',')).map(statusOf),
    class: values.class,
    step: values.step,
    realm: values.realm,
    waitingFor: values['waiting-for'],
    tag: values.tag?.map(tagOf),
    idPrefix: values['id-prefix'],
    inDoubt: values['in-doubt'] === true ? true : undefined,
    since: time('since'),
    from: time('from'),
    until: time('until'),
  }
  const filter = RunFilter.safeParse(
    Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)),
  )
  if (filter.success) return filter.data
  const [issue] = filter.error.issues
  const option = String(issue?.path[0]).replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)
  throw new UsageError(`--${option} ${issue?.message ?? 'is invalid'}`)
}

/** Returns the query of a filter: a member with several values is repeated. */
export const queryOf = (filter: RunFilter): URLSearchParams =>
  new URLSearchParams(
    Object.entries(filter).flatMap(([name, value]) =>
      [value].flat().map((single): [string, string] => [name, String(single)]),
    ),
  )

/** Returns the status in the service's spelling. @throws {UsageError} the status is unknown. */
function statusOf(text: string): string {
  const status = headerStatuses.find((known) => known.toLowerCase() === text.trim().toLowerCase())
  if (status === undefined)
    throw new UsageError(`--status must be one of ${headerStatuses.join(', ')}`)
  return status
}

/** Returns `name:value` of `name=value`, which is how the API separates them. @throws {UsageError} there is no `=`. */
function tagOf(text: string): string {
  const end = text.search(/[=:]/)
  if (end < 1) throw new UsageError('--tag must be NAME=VALUE')
  return `${text.slice(0, end)}:${text.slice(end + 1)}`
}

const UNITS = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const

/** Returns the time that was a duration ago, or the text if it is a time. @throws {UsageError} it is neither. */
function timeOf(option: string, text: string, now: number): string {
  const [, amount, unit] = /^(\d{1,6})([smhd])$/.exec(text) ?? []
  if (amount !== undefined)
    return new Date(now - Number(amount) * UNITS[unit as keyof typeof UNITS]).toISOString()
  if (!z.iso.datetime({ offset: true }).safeParse(text).success)
    throw new UsageError(
      `${option} must be a duration such as 30m, 2h or 3d, or a time such as 2026-01-31T08:00:00Z`,
    )
  return text
}
