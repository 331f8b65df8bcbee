/**
 * Shows a short message after an action. The frame of the page contains it, and screen readers
 * announce it.
 */
import { createStore } from './store.ts'

const SHOWN_MS = 8_000

const message = createStore('')
let timer = 0

/** Shows a message for some seconds. It replaces the previous message. */
export function notify(text: string): void {
  clearTimeout(timer)
  message.set(text)
  timer = setTimeout(() => message.set(''), SHOWN_MS)
}

export const useNotice = (): string => message.use((text) => text)
