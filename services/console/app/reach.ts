/**
 * Whether requests reach the console. The event stream alone does not tell: a proxy may end it again and again, while
 * every request is answered. So it counts whether the browser has a network, and whether the last request got a response.
 */
import { useSyncExternalStore } from 'react'

let hasAnswered = true
const listeners = new Set<() => void>()

function changed(): void {
  for (const listener of listeners) listener()
}

/** Reports that a request got a response, or got none. */
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

/** Returns whether an action has a chance to reach the console. */
export const useReach = (): boolean =>
  useSyncExternalStore(subscribe, () => navigator.onLine && hasAnswered)
