import { useEffect, useState } from 'react'

/** The pause in typing, in milliseconds, after which the text is used. */
const PAUSE_MS = 150

/**
 * Returns the text, with a delay: after a change, returns the previous text until there has been no
 * further change for a moment.
 */
export function usePaused(text: string): string {
  const [paused, setPaused] = useState(text)
  useEffect(() => {
    const timer = setTimeout(() => setPaused(text), PAUSE_MS)
    return () => clearTimeout(timer)
  }, [text])
  return paused
}
