import { notify } from './notice.ts'

/** Copies a text, and says so. */
export function copy(text: string): void {
  navigator.clipboard.writeText(text).then(
    () => notify('Copied.'),
    () => notify('The browser does not allow copying.'),
  )
}

/** Offers a text as a file, without a request. */
export function download(text: string, name: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: 'text/plain' }))
  const link = document.createElement('a')
  link.href = url
  link.download = name
  link.click()
  URL.revokeObjectURL(url)
}
