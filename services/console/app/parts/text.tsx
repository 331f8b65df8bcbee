/** Characters that change how other characters are shown, such as U+202E (right-to-left override). */
const FORMAT = /\p{Cf}/gu

/** Returns a text for an attribute, with each invisible format character replaced by its code point. */
export const visible = (text: string): string =>
  text.replaceAll(
    FORMAT,
    (character) =>
      `⟨U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}⟩`,
  )

/**
 * Shows text that comes from outside. It cannot change the direction of the text around it. Invisible format
 * characters are shown as their code points, so that one id cannot look like another.
 */
export function Outside({ text }: { readonly text: string }) {
  return <bdi>{visible(text)}</bdi>
}
