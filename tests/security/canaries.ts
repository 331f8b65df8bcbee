/** Secrets of a run, and the search for them in whatever a system wrote. */

/** A secret by its kind and value. The kind is what a failure names; the value is never printed. */
export interface Canary {
  readonly kind: string
  readonly value: Buffer
}

/** Something that was written, and where. */
export interface Finding {
  readonly place: string
  readonly bytes: Buffer
}

export const canary = (kind: string, value: string | Buffer): Canary => ({
  kind,
  value: Buffer.from(value),
})

/** A part this long is as good as the whole: a cut or masked secret is found by it. */
const PART = 16

/**
 * The forms in which a secret may have been written down, by name. Base64 at all three alignments, because
 * a secret in the middle of something encoded starts anywhere.
 */
export function formsOf(value: Buffer): ReadonlyMap<string, string> {
  const raw = value.toString('latin1')
  const forms = new Map([['raw', raw]])
  if (value.length >= 2 * PART) {
    // Not the very first characters: what names the kind of a token is no secret.
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
      // Without the characters that hold bits of what stands before or behind.
      const whole = shifted.toString(encoding).slice(offset === 0 ? 0 : offset + 1)
      const shared = shifted.length % 3
      const text = whole.replace(/=+$/, '')
      forms.set(`${encoding} at ${offset}`, shared === 0 ? text : text.slice(0, -1))
    }
  }
  return forms
}

/** Every canary that is in what was found, one line each: `<kind> in <place> (<form>)`. */
export function search(canaries: readonly Canary[], findings: readonly Finding[]): string[] {
  const wanted = canaries.map(({ kind, value }) => ({ kind, forms: [...formsOf(value)] }))
  const hits = findings.flatMap(({ place, bytes }) => {
    const text = bytes.toString('latin1')
    const lower = text.toLowerCase() // hexadecimal digits are written in both cases
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
