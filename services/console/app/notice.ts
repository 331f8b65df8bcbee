/**
 * Shows a short message after an action. The frame of the page contains it, and screen readers
 * announce it.
 */
import { useSyncExternalStore } from 'react'

const SHOWN_MS = 8_000

let message = ''
let timer = 0
const listeners = new Set<() => void>()

function set(text: string): void {
  message = text
  for (const listener of listeners) listener()
}

/** Shows a message for some seconds. It replaces the previous message. */
export function notify(text: string): void {
  clearTimeout(timer)
  set(text)
  timer = setTimeout(() => set(''), SHOWN_MS)
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener)
  return () => void listeners.delete(listener)
}

export const useNotice = (): string => useSyncExternalStore(subscribe, () => message)
