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

/** Copies a text to the clipboard, and shows whether it was copied. */
export function copy(text: string): void {
  navigator.clipboard.writeText(text).then(
    () => notify('Copied.'),
    () => notify('The browser does not allow copying.'),
  )
}
