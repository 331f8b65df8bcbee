import { AssertionError } from 'node:assert'
import { isDeepStrictEqual } from 'node:util'
import type { RouteMatcher, TargetCall } from './fake-target.ts'

/** What a call must have. An object matches if it has at least the given members. */
export interface CallExpectation {
  /** The exact number of calls. Default: at least one call. */
  readonly times?: number
  /** The `Idempotency-Key` of the call, such as `run.key('order')`. */
  readonly key?: string
  readonly query?: Readonly<Record<string, string>>
  /** The headers. Their names are in lower case. */
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: unknown
}

export interface ReceivedCalls {
  readonly url: string
  readonly calls: readonly TargetCall[]
  readonly route: string
  readonly matches: RouteMatcher
}

/** @throws {AssertionError} if the calls are not as expected. */
export function requireCalls(
  { url, calls, route, matches }: ReceivedCalls,
  expected: CallExpectation,
): void {
  const { times, ...parts } = expected
  const ofRoute = calls.filter(matches)
  const found = ofRoute.filter((call) => isPartOf(parts, call))
  if (times === undefined ? found.length > 0 : found.length === times) return
  const what = `${times === undefined ? 'a call' : callCount(times)} of ${route} at ${url}`
  const withParts = Object.entries(parts).map(([name, value]) => ` with ${name} ${show(value)}`)
  const others = calls.filter((call) => !matches(call))
  throw new AssertionError({
    message: [
      `expected ${what}${withParts.join(' and')}, but there ${found.length === 1 ? 'was 1' : `were ${found.length || 'none'}`}`,
      ...listOf(`calls of ${route}`, ofRoute),
      ...listOf('other calls', others),
      ...(calls.length === 0 ? ['The target received no calls.'] : []),
    ].join('\n'),
    actual: found.length,
    expected: times ?? 'at least 1',
    operator: 'toHaveCalled',
    stackStartFn: requireCalls,
  })
}

const callCount = (times: number): string => (times === 1 ? '1 call' : `${times} calls`)

const MAX_LISTED = 20

function listOf(title: string, calls: readonly TargetCall[]): string[] {
  if (calls.length === 0) return []
  const lines = calls.slice(0, MAX_LISTED).map(({ method, path, query, key, body }, index) => {
    const search = new URLSearchParams(query).toString()
    const parts = [
      `${method} ${path}${search === '' ? '' : `?${search}`}`,
      ...(key === null ? [] : [`key ${key}`]),
      ...(body === null ? [] : [`body ${show(body)}`]),
    ]
    return `  ${index + 1}. ${parts.join('  ')}`
  })
  const left = calls.length - lines.length
  return [`${title}:`, ...lines, ...(left > 0 ? [`  and ${left} more`] : [])]
}

const MAX_SHOWN = 300

const show = (value: unknown): string => {
  const text = JSON.stringify(value) ?? String(value)
  return text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}…` : text
}

/**
 * Returns whether `actual` has all members of `expected`, at every depth. The elements of arrays are compared in
 * order.
 */
function isPartOf(expected: unknown, actual: unknown): boolean {
  if (typeof expected !== 'object' || expected === null) return isDeepStrictEqual(expected, actual)
  if (typeof actual !== 'object' || actual === null) return false
  if (Array.isArray(expected))
    return (
      Array.isArray(actual) &&
      actual.length === expected.length &&
      expected.every((one, index) => isPartOf(one, actual[index]))
    )
  return Object.entries(expected).every(
    ([name, value]) =>
      Object.hasOwn(actual, name) && isPartOf(value, (actual as Record<string, unknown>)[name]),
  )
}
