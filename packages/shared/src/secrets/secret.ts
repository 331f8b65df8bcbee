import { hash, timingSafeEqual } from 'node:crypto'
import { inspect } from 'node:util'

/**
 * A value that must not leak by accident. Printing, serialising or concatenating a `Secret` gives `[secret]`; only
 * `reveal()` returns the value. A search for `reveal` therefore finds every use of a secret.
 */
export class Secret {
  readonly #value: string
  #digest: Buffer | null = null

  constructor(value: string) {
    this.#value = value
  }

  reveal(): string {
    return this.#value
  }

  /**
   * Compares the secret with a text in constant time. Digests are compared, because `timingSafeEqual` needs values of
   * equal length.
   */
  equals(other: string): boolean {
    this.#digest ??= digest(this.#value)
    return timingSafeEqual(this.#digest, digest(other))
  }

  toString(): string {
    return '[secret]'
  }

  toJSON(): string {
    return '[secret]'
  }

  [inspect.custom](): string {
    return '[secret]'
  }
}

const digest = (value: string): Buffer => hash('sha256', value, 'buffer')
