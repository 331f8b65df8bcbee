import { useSyncExternalStore } from 'react'

/** Below this width, the list of runs has lines instead of columns. The style sheet has the same width. */
const query = window.matchMedia('(max-width: 767px)')

function subscribe(listener: () => void): () => void {
  query.addEventListener('change', listener)
  return () => query.removeEventListener('change', listener)
}

/** Returns whether the window is too narrow for the columns of the list of runs. */
export const useIsNarrow = (): boolean => useSyncExternalStore(subscribe, () => query.matches)
