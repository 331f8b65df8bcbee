/**
 * The frames of the event stream. A browser that was disconnected continues after the last frame that it has, and gets
 * the frames that it missed.
 *
 * F1  The id of a frame is `<boot>-<number>`. `boot` identifies this process, so that ids of an earlier process are
 *     recognized.
 * F2  Frames are kept for `KEPT_MS`, and at most `MAX_FRAMES`. A browser whose last frame is not kept any more gets the
 *     event `reset`, and reads everything again.
 * F3  A frame contains the whole new state of its part of the page. Repeating or skipping frames of one name is
 *     therefore harmless, as long as the last frame of this name arrives. The frame `runs` only names runs that have
 *     changed, and the frame `acted` only reports that a person has acted; the pages then read again what they show.
 */
const KEPT_MS = 300_000
const MAX_FRAMES = 20_000

export interface Frame {
  readonly number: number
  readonly text: string
  readonly at: number
}

export interface Frames {
  /** Adds a frame, and passes its text to every listener. */
  add(name: string, data: unknown): void
  /**
   * Returns the texts that a browser gets first: the frames after `lastId`, or a `reset` if `lastId` is not known. A
   * browser without `lastId` reads everything after it has opened the stream, so it only gets the id of the newest
   * frame.
   */
  since(lastId: string | null): readonly string[]
  listen(listener: (text: string) => void): () => void
}

/** `now` is a monotonic clock in milliseconds. */
export function createFrames(boot: string, now: () => number): Frames {
  const kept: Frame[] = []
  const listeners = new Set<(text: string) => void>()
  let number = 0
  return {
    add(name, data) {
      number += 1
      const text = `id: ${boot}-${number}\nevent: ${name}\ndata: ${JSON.stringify(data)}\n\n`
      kept.push({ number, text, at: now() })
      const firstKept = kept.findIndex(({ at }) => now() - at < KEPT_MS)
      kept.splice(0, Math.max(firstKept, kept.length - MAX_FRAMES))
      for (const listener of listeners) listener(text)
    },
    since(lastId) {
      const current = `id: ${boot}-${number}\n`
      if (lastId === null) return [`${current}event: current\ndata: {}\n\n`]
      const [, sameBoot, digits] = /^([\w]{1,32})-(\d{1,15})$/.exec(lastId) ?? []
      const last = Number(digits)
      const oldest = kept[0]?.number ?? number + 1
      if (sameBoot !== boot || last > number || last + 1 < oldest)
        return [`${current}event: reset\ndata: {"Reason":"gap"}\n\n`]
      return kept.filter((frame) => frame.number > last).map(({ text }) => text)
    },
    listen(listener) {
      listeners.add(listener)
      return () => void listeners.delete(listener)
    },
  }
}
