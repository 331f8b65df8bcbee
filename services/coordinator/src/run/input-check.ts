/** Checks initial data against the `input` schema of a process. */
import type { z } from 'zod'

/**
 * `input` is the data that the schema returns. `problems` lists the path of each invalid value. A path consists of
 * member names and record keys, and does not contain the value.
 */
export type CheckedInput =
  | { readonly input: unknown }
  | { readonly problems: readonly [string, ...string[]] }

const MAX_PROBLEMS = 10

/** Checks data against the schema. If there is no schema, any data is valid. `name` names the data in problems. */
export function checkedInput(
  schema: z.ZodType | null,
  data: unknown,
  { name, what } = { name: 'InitialData', what: 'the input schema of the process' },
): CheckedInput {
  if (schema === null) return { input: data }
  let result: z.ZodSafeParseResult<unknown>
  try {
    // `safeParse` would drop the promise of an asynchronous refinement, and an unhandled rejection of the promise would
    // end the OS process. With `async: true`, `run` returns the promise.
    // oxlint-disable-next-line no-underscore-dangle -- zod documents `_zod` for libraries that run schemas
    const parsed = schema._zod.run({ value: data, issues: [] }, { async: true })
    if (parsed instanceof Promise) {
      parsed.catch(() => {})
      return { problems: [`${name}: ${what} is asynchronous`] }
    }
    if (parsed.issues.length === 0) return { input: parsed.value }
    result = schema.safeParse(data)
  } catch (error) {
    // A refinement of the schema threw. The data is rejected, because a run must not start with data that cannot be
    // checked.
    const why = error instanceof Error ? error.name : 'not an error'
    return { problems: [`${name}: ${what} threw ${why}`] }
  }
  if (result.success) return { input: result.data }
  const [first, ...others] = problemsOf(name, result.error.issues)
  return { problems: [first ?? `${name}: is not valid`, ...others] }
}

/** Returns one text for each of the first ten issues of a schema: the path from `root` to the value, and the message. */
export const problemsOf = (
  root: string,
  issues: readonly Pick<z.core.$ZodIssue, 'path' | 'message'>[],
): readonly string[] =>
  issues
    .slice(0, MAX_PROBLEMS)
    .map(({ path, message }) => `${[root, ...path].map(String).join('.')}: ${message}`)
