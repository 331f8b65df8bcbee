import { notify } from './notice.ts'

/** Copies a text to the clipboard, and shows whether it was copied. */
export function copy(text: string): void {
  navigator.clipboard.writeText(text).then(
    () => notify('Copied.'),
    () => notify('The browser does not allow copying.'),
  )
}

/** Makes the browser save a text as a file, without a request to the console. */
export function download(text: string, name: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: 'text/plain' }))
  const link = document.createElement('a')
  link.href = url
  link.download = name
  link.click()
  URL.revokeObjectURL(url)
}
