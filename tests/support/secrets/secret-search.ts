/** Searches for the secrets of a test run, in every likely encoding, in all data that a system wrote. */

/** An error message names the kind of a secret, but never contains the value. */
export interface KnownSecret {
  readonly kind: string
  readonly value: Buffer
}

/** Data that the system wrote, and the place where the data was found. */
export interface WrittenData {
  readonly place: string
  readonly bytes: Buffer
}

export const knownSecret = (kind: string, value: string | Buffer): KnownSecret => ({
  kind,
  value: Buffer.from(value),
})

/**
 * Parts of a secret that have this length are searched for as well. They reveal a secret that was truncated or partly
 * masked.
 */
const PART = 16

/**
 * Returns the encodings in which a secret may have been written, by name. Base64 has three variants, because a
 * secret may start at any offset of a larger encoded value.
 */
export function formsOf(value: Buffer): ReadonlyMap<string, string> {
  const raw = value.toString('latin1')
  const forms = new Map([['raw', raw]])
  if (value.length >= 2 * PART) {
    // The prefix that shows the kind of a token is not secret, so the first characters are not searched for.
    forms.set('a part of it', raw.slice(PART, 2 * PART))
    forms.set('its end', raw.slice(-PART))
  }
  forms.set('hex', value.toString('hex'))
  forms.set('percent-encoded', encodeURIComponent(raw))
  forms.set('percent-encoded whole', value.toString('hex').replace(/../g, '%$&'))
  forms.set('JSON-escaped', JSON.stringify(raw).slice(1, -1))
  for (const encoding of ['base64', 'base64url'] as const) {
    for (const offset of [0, 1, 2]) {
      const shifted = Buffer.concat([Buffer.alloc(offset), value])
      // Removes the first and last characters, because they also encode bits of the data before and after the secret.
      const whole = shifted.toString(encoding).slice(offset === 0 ? 0 : offset + 1)
      const shared = shifted.length % 3
      const text = whole.replace(/=+$/, '')
      forms.set(`${encoding} at ${offset}`, shared === 0 ? text : text.slice(0, -1))
    }
  }
  return forms
}

/** Returns one line for each secret that occurs in the data: `<kind> in <place> (<form>)`. */
export function search(secrets: readonly KnownSecret[], written: readonly WrittenData[]): string[] {
  const wanted = secrets.map(({ kind, value }) => ({ kind, forms: [...formsOf(value)] }))
  const hits = written.flatMap(({ place, bytes }) => {
    const text = bytes.toString('latin1')
    const lower = text.toLowerCase() // hexadecimal digits may be in upper or lower case
    return wanted.flatMap(({ kind, forms }) =>
      forms
        .filter(([form, value]) =>
          /hex|whole/.test(form) ? lower.includes(value) : text.includes(value),
        )
        .map(([form]) => `${kind} in ${place} (${form})`),
    )
  })
  return [...new Set(hits)]
}
