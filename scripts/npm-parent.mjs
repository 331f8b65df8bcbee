/**
 * Calls `onOrphaned` when the parent process has exited, if npm or npx started this process. A SIGTERM to npm ends npm
 * and its shell, but npm does not forward the signal to this process. Only the change of its parent process shows this
 * process that npm has ended.
 *
 * @param {() => void} onOrphaned
 */
export function watchForOrphaning(onOrphaned) {
  if (process.env['npm_lifecycle_event'] === undefined) return undefined
  const parent = process.ppid
  const watch = setInterval(() => {
    if (process.ppid === parent) return
    clearInterval(watch)
    onOrphaned()
  }, 250)
  return watch.unref()
}
