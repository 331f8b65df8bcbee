/** Characters that change how other characters are shown, such as U+202E (right-to-left override). */
const FORMAT = /\p{Cf}/gu

/** Returns a text in which each invisible format character is its code point, for attributes. */
export const visible = (text: string): string =>
  text.replaceAll(
    FORMAT,
    (character) =>
      `⟨U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}⟩`,
  )

/**
 * Shows text that comes from outside. Its direction cannot reach beyond it, and invisible format characters are shown
 * as their code points, so that one id cannot pretend to be another.
 */
export function Outside({ text }: { readonly text: string }) {
  return <bdi>{visible(text)}</bdi>
}
