import type { Caller } from './caller.ts'

/**
 * How many things, such as open streams or stored links, may exist at a time. `perKey` is smaller than `total`, so that
 * one key cannot keep all other keys out.
 */
export interface PlaceLimits {
  /** The maximum for all callers together. */
  readonly total: number
  /** The maximum for one key of the key file. It is not applied to a key without a share (`Caller.shareOf`). */
  readonly perKey: number
}

/** The callers of one process that hold a limited number of places, such as the open event streams. */
export class Places {
  readonly #limits: PlaceLimits
  readonly #held = new Map<string | null, number>()
  #size = 0

  constructor(limits: PlaceLimits) {
    this.#limits = limits
  }

  /** The number of places that are taken. */
  get size(): number {
    return this.#size
  }

  /**
   * Takes a place for a caller. Returns the function that frees the place; calling it again has no effect. Returns
   * `null` if all places are taken, or all places of the caller's key.
   */
  take({ shareOf }: Pick<Caller, 'shareOf'>): (() => void) | null {
    const held = this.#held.get(shareOf) ?? 0
    if (this.#size >= this.#limits.total) return null
    if (shareOf !== null && held >= this.#limits.perKey) return null
    this.#held.set(shareOf, held + 1)
    this.#size += 1
    let isFreed = false
    return () => {
      if (isFreed) return
      isFreed = true
      this.#size -= 1
      const left = (this.#held.get(shareOf) ?? 0) - 1
      // A key that holds nothing is forgotten. Otherwise the map would grow with every key that was ever used.
      if (left === 0) this.#held.delete(shareOf)
      else this.#held.set(shareOf, left)
    }
  }
}
