import { readFileSync, statSync } from 'node:fs'
import { z } from 'zod'
import type { Health } from '../observability/health.ts'
import type { Logger } from '../observability/logger.ts'
import type { Metrics } from '../observability/metrics.ts'

/**
 * The result of parsing a list. If the content is not valid, `list` is `null` and `faults` has a line for each fault.
 */
export type ParsedList<Entry> =
  | { readonly list: readonly Entry[]; readonly faults: readonly [] }
  | { readonly list: null; readonly faults: readonly string[] }

/** The path of an existing file, and its content at the start. */
export interface ReadFile {
  readonly path: string
  readonly text: string
}

/** A setting that is the path of a readable file. */
export const readableFile = () =>
  z.string().transform((path, context): ReadFile => {
    try {
      return { path, text: readFileSync(path, 'utf8') }
    } catch (error) {
      const { code = 'unknown' } = error as NodeJS.ErrnoException
      context.addIssue({ code: 'custom', message: `the file cannot be read (${code})` })
      return z.NEVER
    }
  })

export interface ListFileOptions<Entry> {
  /** The name of the setting with the path, such as `SERVICE_KEYS_FILE`. */
  readonly setting: string
  readonly parse: (text: string) => ParsedList<Entry>
  /** Called with each valid list, first at the start and then after each change. */
  readonly onList: (list: readonly Entry[]) => void
}

/** The maximum number of faults that one error or log line lists. */
export const MAX_FAULTS = 50

/**
 * Reads a file that contains a list, and reads it again within a second after each change. At the start, the file must
 * be valid. If it is not valid after a change, the service continues to use the last valid list. The fault is reported
 * in the log, in `/health/ready` (as a dependency with the name of the setting, such as `service-keys-file`), and by a
 * metric (such as `service_keys_file_valid`).
 */
export function openListFile<Entry>(
  { path, text }: ReadFile,
  { setting, parse, onList }: ListFileOptions<Entry>,
  {
    logger,
    health,
    metrics,
  }: { readonly logger: Logger; readonly health: Health; readonly metrics: Metrics },
): Disposable {
  const name = setting.toLowerCase()
  const dependency = health.dependency(name.replaceAll('_', '-'), 'optional')
  const valid = metrics.gauge(
    `${name}_valid`,
    `1 while the file of ${setting} is valid, 0 while an earlier list is still used`,
  )
  const accept = (content: string): void => {
    const { list, faults } = parse(content)
    if (list === null) return reject(faults)
    onList(list)
    dependency.up()
    valid.set(1)
    logger.info({ setting, file: path, entries: list.length }, 'list was loaded from its file')
  }
  const reject = (faults: readonly string[]): void => {
    dependency.down('the file is not valid: the last valid list is still used')
    valid.set(0)
    logger.error(
      {
        setting,
        file: path,
        faults: faults.slice(0, MAX_FAULTS),
        remedy: 'correct the file; it is read again within a second',
      },
      'list file is not valid: the last valid list is still used',
    )
  }
  accept(text)
  return watchFile(path, text, {
    onContent: accept,
    onUnreadable: (reason) => reject([`the file cannot be read (${reason})`]),
  })
}

/** The interval between two checks of the file. A change takes effect after this interval at the latest. */
const CHECK_MS = 500

interface WatchedFile {
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
function watchFile(
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
