/** What doctor tells of one thing it looked at. */
export interface Finding {
  readonly check: string
  readonly verdict: 'ok' | 'warning' | 'problem' | 'skipped'
  readonly found: string
  /** What to do about it; null where there is nothing to do. */
  readonly mend: string | null
}

export const ok = (check: string, found: string): Finding => ({
  check,
  verdict: 'ok',
  found,
  mend: null,
})

/** It works, but not as it should, or not for long. */
export const warning = (check: string, found: string, mend: string): Finding => ({
  check,
  verdict: 'warning',
  found,
  mend,
})

/** Something does not work, or loses what must not be lost. */
export const problem = (check: string, found: string, mend: string): Finding => ({
  check,
  verdict: 'problem',
  found,
  mend,
})

/** Could not be looked at; `mend` says what that needs. */
export const skipped = (check: string, found: string, mend: string): Finding => ({
  check,
  verdict: 'skipped',
  found,
  mend,
})

/** Whether the first two numbers of a version are at least these; a version without numbers is not. */
function isAtLeast(version: string, [major, minor]: readonly [number, number]): boolean {
  const [, first = '-1', second = '0'] = /^(\d+)(?:\.(\d+))?/.exec(version) ?? []
  return Number(first) > major || (Number(first) === major && Number(second) >= minor)
}

export function versionFinding(version: string, needed: readonly [number, number]): Finding {
  return isAtLeast(version, needed)
    ? ok('version', version)
    : problem('version', version, `Upgrade to ${needed.join('.')} or newer.`)
}
