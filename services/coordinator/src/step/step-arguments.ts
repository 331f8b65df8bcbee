/**
 * The members that the arguments of step methods may have. A member with another name would be ignored, and a step that
 * misspells `timeoutMs` or `body` would do something else than it says.
 */
import { requireMembers } from './definition-checks.ts'
import type {
  CallOptions,
  CreateOnceOptions,
  EntryOptions,
  ExecuteOptions,
  LinkOptions,
  Progress,
} from './step.ts'
import type { StepRequest, TargetRequest } from './step-request.ts'

/** The methods that make a call. */
export type CallName = 'execute' | 'createOnce' | 'fetch' | 'find' | 'update'

const CALL_OPTIONS = ['credential', 'timeoutMs'] as const satisfies (keyof CallOptions)[]
const OPTIONS: Readonly<Record<CallName, ReadonlySet<string>>> = {
  execute: new Set([...CALL_OPTIONS, 'parse'] satisfies (keyof ExecuteOptions<null>)[]),
  createOnce: new Set(CALL_OPTIONS),
  fetch: new Set(CALL_OPTIONS),
  update: new Set(['parse', 'timeoutMs', 'credential']),
  find: new Set([...CALL_OPTIONS, 'parse'] satisfies (keyof ExecuteOptions<null>)[]),
}
const REQUEST = new Set<string>([
  'url',
  'target',
  'path',
  'method',
  'query',
  'headers',
  'body',
] satisfies (keyof StepRequest | keyof TargetRequest)[])

export const CREATE_ONCE_OPTIONS = new Set<string>([
  'mark',
  'onExisting',
  'parse',
  'timeoutMs',
] satisfies (keyof CreateOnceOptions<'Invoice', null>)[])
export const MARK_MEMBERS = new Set(['field', 'value'])
export const ENTRY_OPTIONS = new Set<string>([
  'process',
  'transaction',
  'step',
] satisfies (keyof EntryOptions)[])
export const FAIL_OPTIONS = new Set(['undo'])
export const REPEAT_OPTIONS = new Set(['afterMs'])
export const LINK_OPTIONS = new Set<string>([
  'for',
  'expiresInSeconds',
] satisfies (keyof LinkOptions)[])
export const PROGRESS = new Set<string>(['done', 'of', 'note'] satisfies (keyof Progress)[])

/** @throws {TypeError} for an unknown member of the request or of the options */
export function requireCall(request: unknown, options: object, method: CallName): void {
  requireMembers(options, OPTIONS[method], method)
  // What a request must have at least is checked when the call is built.
  if (typeof request !== 'object' || request === null) return
  const misplaced = Object.keys(request).find((member) => OPTIONS[method].has(member))
  if (misplaced !== undefined)
    throw new TypeError(
      `the request of ${method} has no member ${misplaced}: it belongs to the options, ${method}(request, { ${misplaced} })`,
    )
  requireMembers(request, REQUEST, `the request of ${method}`)
}
