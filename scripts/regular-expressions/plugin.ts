/**
 * A plugin for oxlint with one rule, which rejects regular expressions whose time can grow faster than the text. Texts
 * come from clients, providers and brokers, so one such expression lets one request stop a process.
 */
import { checkSync } from 'recheck'

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
          ? result.attack.pattern
          : `not checked: ${result.error.kind}`,
    )
  }
  return results.get(key) ?? null
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
