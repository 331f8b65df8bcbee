/**
 * Determines whether requests reach the console: they do if the browser has a network and the last request got a
 * response. The state of the event stream is not sufficient, because a proxy may end the stream repeatedly although
 * every request gets a response.
 */
import { createStore } from './store.ts'

const hasNetwork = createStore(true)
const hasAnswered = createStore(true)

/** Records whether the last request got a response. */
export const setAnswered = hasAnswered.set

/** Follows whether the browser has a network. Called once, before any page is shown. */
export function followNetwork(): void {
  const read = (): void => hasNetwork.set(navigator.onLine)
  read()
  for (const name of ['online', 'offline']) window.addEventListener(name, read)
}

/** Returns whether an action can probably reach the console. */
export function useReach(): boolean {
  const isOnline = hasNetwork.use((has) => has)
  const isAnswered = hasAnswered.use((has) => has)
  return isOnline && isAnswered
}
