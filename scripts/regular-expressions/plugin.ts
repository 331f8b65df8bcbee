/**
 * A plugin for oxlint with one rule, which rejects regular expressions whose time can grow faster than the text. Texts
 * come from clients, providers and brokers, so one such expression lets one request stop a process.
 */
import { checkSync, type VulnerableDiagnostics } from 'recheck'

/** The parts of oxlint's interface that the rule uses. */
interface Context {
  report(problem: { readonly node: object; readonly message: string }): void
}
interface RegularExpression {
  readonly regex?: { readonly pattern: string; readonly flags: string }
}
interface Creation {
  readonly callee: { readonly name?: string }
  readonly arguments: readonly Source[]
}
interface Source {
  readonly type: string
  readonly value?: unknown
  readonly tag?: object
  readonly quasi?: Source
  readonly quasis?: readonly { readonly value: { readonly raw: string; readonly cooked: string } }[]
}

const results = new Map<string, string | null>()

/** Returns the text that makes the expression slow; `null` if its time is linear. */
function attackOn(pattern: string, flags: string): string | null {
  // Without a repetition that has no limit, the time is bounded for each position of the text.
  if (!/[*+]|\{\d+,(?:\d{4,})?\}/.test(pattern)) return null
  const key = `${flags}/${pattern}`
  if (!results.has(key)) {
    const result = checkSync(pattern, flags, { timeout: 60_000 })
    results.set(
      key,
      result.status === 'safe'
        ? null
        : result.status === 'vulnerable'
          ? isConfirmed(pattern, flags, result)
            ? result.attack.pattern
            : null
          : `not checked: ${result.error.kind}`,
    )
  }
  return results.get(key) ?? null
}

const LONGEST = 200_000
const TELLING_MS = 30

/**
 * Whether V8 needs more than linear time for the text that was found. recheck can prove its result unless the expression
 * has a lookaround or a backreference. It then searches at random for a limited time, and on a busy machine it also
 * reports expressions that are linear.
 */
function isConfirmed(
  pattern: string,
  flags: string,
  { checker, complexity, attack: { pumps, suffix } }: VulnerableDiagnostics,
): boolean {
  if (checker === 'automaton' || complexity.type === 'exponential') return true
  const expression = new RegExp(pattern, flags.replace(/[gy]/, ''))
  const timeFor = (repeats: number): number => {
    const text = pumps.map(({ prefix, pump }) => prefix + pump.repeat(repeats)).join('') + suffix
    const { user } = process.cpuUsage()
    expression.exec(text)
    return (process.cpuUsage().user - user) / 1_000
  }
  let before = 0
  for (let repeats = 250; repeats <= LONGEST; repeats *= 2) {
    const ms = Math.min(timeFor(repeats), timeFor(repeats))
    if (ms > TELLING_MS) return ms > 3 * before
    before = ms
  }
  return false
}

/** Returns the pattern that a program builds; its variable parts are represented by the character `x`. */
function patternOf(source: Source | undefined): string | null {
  if (typeof source?.value === 'string') return source.value
  if (source?.type === 'TaggedTemplateExpression') return patternOf(source.quasi)
  return source?.quasis?.map(({ value }) => value.raw).join('x') ?? null
}

const rule = {
  create(context: Context) {
    const check = (node: object, pattern: string, flags: string): void => {
      const attack = attackOn(pattern, flags)
      if (attack !== null)
        context.report({ node, message: `takes more than linear time, for example for ${attack}` })
    }
    const onCreation = (node: Creation): void => {
      const pattern = node.callee.name === 'RegExp' ? patternOf(node.arguments[0]) : null
      const flags = node.arguments[1]?.value
      if (pattern !== null) check(node, pattern, typeof flags === 'string' ? flags : '')
    }
    return {
      Literal(node: RegularExpression) {
        if (node.regex !== undefined) check(node, node.regex.pattern, node.regex.flags)
      },
      NewExpression: onCreation,
      CallExpression: onCreation,
    }
  },
}

export default { meta: { name: 'regular-expressions' }, rules: { linear: rule } }
