import { notify } from './notice.ts'

/** Copies a text to the clipboard, and shows whether it was copied. */
export function copy(text: string): void {
  navigator.clipboard.writeText(text).then(
    () => notify('Copied.'),
    () => notify('The browser does not allow copying.'),
  )
}
