import { useEffect, useState } from 'react'

/** A search begins when the person has paused for this time. */
const PAUSE_MS = 150

/** Returns the text as it was before the last changes, until there has been no change for a moment. */
export function usePaused(text: string): string {
  const [paused, setPaused] = useState(text)
  useEffect(() => {
    const timer = setTimeout(() => setPaused(text), PAUSE_MS)
    return () => clearTimeout(timer)
  }, [text])
  return paused
}
