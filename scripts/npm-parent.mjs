/**
 * Calls `onOrphaned` when the parent process has exited, if npm or npx started this process. A SIGTERM to npm ends npm
 * and its shell, but npm does not forward the signal to this process. This process can detect the end of npm only by
 * checking whether its own parent process has changed.
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
