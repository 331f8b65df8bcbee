/**
 * Attributes errors that no code handles to the work that has caused them. An unhandled error otherwise ends the OS
 * process, so one mistake in the code of a user would interrupt everything else that runs in the process.
 *
 * Node keeps the AsyncLocalStorage of the code that has created a timer, a promise or a socket, also while it reports
 * the error of its callback. An error without an owner is reported as if this module did not exist.
 */
import { AsyncLocalStorage } from 'node:async_hooks'

/** `rejection`: a promise that nothing awaits was rejected. `exception`: a callback, such as that of a timer, threw. */
export type UnhandledKind = 'rejection' | 'exception'

/** Called with each unhandled error of the code that runs with this owner. */
export type ErrorOwner = (error: unknown, kind: UnhandledKind) => void

const owners = new AsyncLocalStorage<ErrorOwner | null>()

/** Calls `work`. The owner gets the unhandled errors of everything that `work` starts, also after it has ended. */
export const ownErrors = <Result>(owner: ErrorOwner, work: () => Result): Result =>
  owners.run(owner, work)

/**
 * Calls `work` without an owner. Code of the product that is called by the code of a user needs this, because it may
 * open connections that others use later, and an error of these is a defect of the product.
 */
export const disownErrors = <Result>(work: () => Result): Result => owners.run(null, work)

/** Returns a function that calls its argument with the owner of the calling code. */
export const keepOwner = (): (<Result>(work: () => Result) => Result) => {
  const owner = owners.getStore() ?? null
  return (work) => owners.run(owner, work)
}

const KINDS: ReadonlyMap<string | symbol, UnhandledKind> = new Map([
  ['unhandledRejection', 'rejection'],
  ['uncaughtException', 'exception'],
])

/**
 * Gives unhandled errors to their owners until it is disposed of. It replaces `process.emit`, because an error that has
 * an owner must not reach the other listeners of these events, and a listener cannot stop an event.
 */
export function attributeErrors(): Disposable {
  const before = Object.getOwnPropertyDescriptor(process, 'emit')
  const emit = process.emit.bind(process) as (event: string | symbol, ...args: unknown[]) => boolean
  let isActive = true
  const attributing = (event: string | symbol, ...args: unknown[]): boolean => {
    const kind = isActive ? KINDS.get(event) : undefined
    const owner = kind === undefined ? null : (owners.getStore() ?? null)
    if (kind === undefined || owner === null) return emit(event, ...args)
    owners.run(null, () => owner(args[0], kind))
    return true
  }
  Object.defineProperty(process, 'emit', { value: attributing, configurable: true, writable: true })
  return {
    [Symbol.dispose]() {
      isActive = false
      // A library that has replaced the function later keeps its own one, which calls this one, now without an effect.
      if (Object.getOwnPropertyDescriptor(process, 'emit')?.value !== attributing) return
      if (before === undefined) Reflect.deleteProperty(process, 'emit')
      else Object.defineProperty(process, 'emit', before)
    },
  }
}
