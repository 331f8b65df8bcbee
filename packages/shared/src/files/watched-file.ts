import { readFileSync, statSync } from 'node:fs'

/** The interval between two checks of the file. A change takes effect after this interval at the latest. */
const CHECK_MS = 500

export interface WatchedFile {
  /** Called with the new content after each change of the file. */
  readonly onContent: (text: string) => void
  /** Called once when the file cannot be read any more; `reason` is an error code such as `ENOENT`. */
  readonly onUnreadable: (reason: string) => void
}

/**
 * Watches a file until disposed. The file is polled, because `fs.watch` misses changes on network file systems and in
 * Kubernetes volumes, where a change replaces a symbolic link to the folder.
 *
 * @param current the content that the caller has already read
 */
export function watchFile(
  path: string,
  current: string,
  { onContent, onUnreadable }: WatchedFile,
): Disposable {
  let content: string | null = current
  // The stamp (see `stampOf`) at the last read. The file may have changed since the caller read it, so the stamp is
  // `null` at first, and the first check reads the file.
  let seen: string | null = null
  let reason: string | null = null
  const timer = setInterval(() => {
    try {
      const stamp = stampOf(path)
      if (stamp !== null && stamp === seen && reason === null) return
      const text = readFileSync(path, 'utf8')
      seen = stamp
      reason = null
      if (text === content) return
      content = text
      onContent(text)
    } catch (error) {
      content = null
      const { code = 'unknown' } = error as NodeJS.ErrnoException
      if (code !== reason) onUnreadable(code)
      reason = code
    }
  }, CHECK_MS)
  timer.unref()
  return { [Symbol.dispose]: () => clearInterval(timer) }
}

/** Returns a text that differs after every change of the file; `null` if the file cannot be found. */
function stampOf(path: string): string | null {
  const stats = statSync(path, { bigint: true, throwIfNoEntry: false })
  return stats === undefined ? null : `${stats.ino} ${stats.size} ${stats.mtimeNs} ${stats.ctimeNs}`
}
