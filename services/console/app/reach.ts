/**
 * Determines whether requests reach the console: they do if the browser has a network and the last request got a
 * response. The state of the event stream is not sufficient, because a proxy may end the stream repeatedly although
 * every request gets a response.
 */
import { useSyncExternalStore } from 'react'

let hasAnswered = true
const listeners = new Set<() => void>()

function changed(): void {
  for (const listener of listeners) listener()
}

/** Records whether the last request got a response. */
export function setAnswered(answered: boolean): void {
  if (hasAnswered === answered) return
  hasAnswered = answered
  changed()
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener)
  if (listeners.size === 1)
    for (const name of ['online', 'offline']) window.addEventListener(name, changed)
  return () => {
    listeners.delete(listener)
    if (listeners.size === 0)
      for (const name of ['online', 'offline']) window.removeEventListener(name, changed)
  }
}

/** Returns whether an action can probably reach the console. */
export const useReach = (): boolean =>
  useSyncExternalStore(subscribe, () => navigator.onLine && hasAnswered)
