/** The options that select runs, for lists and bulk operations. */
import { RunFilter } from '@integration-host/shared/contracts/run-filter'
import { headerStatuses } from '@integration-host/shared/contracts/transaction'
import { flags, type Given, invalidOption, lists, pairOf, texts } from '../../command.ts'
import { UsageError } from '../../exit-code.ts'
import { timeOf } from '../../times.ts'

export const filterOptions = {
  ...lists('status', 'class', 'step', 'definition-version', 'realm', 'waiting-for', 'priority'),
  ...lists('tag'),
  ...flags('children', 'in-doubt'),
  ...texts('id-prefix', 'since', 'from', 'until'),
}

export const FILTER_HELP = `  --status STATUS     ${headerStatuses.join(', ')}
  --class CLASS       the error class, such as http_503; or the provider's error code, such as 6240
  --step STEP         the step that is due, or the last one
  --definition-version VERSION
                      the version of the process with which the run began
  --realm REALM       the realm id of the company
  --waiting-for NAME  the credential that the run waits for: ACC-<realm>
  --priority PRIORITY high or normal
  --tag NAME=VALUE    a tag; if repeated, a run needs all of the tags
  --children          also runs that are children of other runs
  --id-prefix TEXT    the beginning of the id
  --in-doubt          only runs of which an earlier attempt may have done the work of the step
  --since WHEN        finished at this time or later, or unfinished and changed at this time or later: 30m, 2h or 3d
                      ago, or 2026-01-31T08:00:00Z
  --from WHEN         queued at this time or later
  --until WHEN        queued before this time
                      If --status, --class, --step, --definition-version, --realm, --waiting-for or --priority is
                      repeated, a run needs one of the values.`

/**
 * Returns the filter that the options describe, without the members that are not given.
 *
 * @param now milliseconds since the epoch, from which durations such as `2h` are counted
 * @throws {UsageError} an option is invalid.
 */
export function filterOf(
  values: Omit<Given<typeof filterOptions>['values'], 'url' | 'json'>,
  now: number,
): RunFilter {
  const time = (option: 'since' | 'from' | 'until'): string | undefined =>
    values[option] === undefined ? undefined : timeOf(`--${option}`, values[option], now)
  const given = {
    status: values.status?.flatMap((text) => text.split(',')).map(statusOf),
    class: values.class,
    step: values.step,
    version: values['definition-version'],
    realm: values.realm,
    waitingFor: values['waiting-for'],
    priority: values.priority,
    // The API separates the name and the value of a tag with a colon.
    tag: values.tag?.map((text) => pairOf('--tag', text).join(':')),
    children: values.children,
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
  const member = String(filter.error.issues[0]?.path[0])
  // The option for the member `version` has another name, because `--version` already prints the version of the
  // installation.
  const name = member === 'version' ? 'definitionVersion' : member
  const option = name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)
  throw invalidOption(`--${option}`, filter.error)
}

/** Returns the status in the service's spelling. @throws {UsageError} the status is unknown. */
function statusOf(text: string): string {
  const status = headerStatuses.find((known) => known.toLowerCase() === text.trim().toLowerCase())
  if (status === undefined)
    throw new UsageError(`--status must be one of ${headerStatuses.join(', ')}`)
  return status
}
