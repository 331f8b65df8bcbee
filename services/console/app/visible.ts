/**
 * Matches the characters of a one-line text that cannot be seen or that can be mistaken for other text: control and
 * format characters, private-use and unassigned characters, and the bracket with which a replacement begins. The pattern
 * also matches every space, except a single ordinary space between two words.
 */
const HIDDEN_IN_LINE =
  /[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800]|(?! )\p{Zs}|^ | $| (?= )|⟨(?=U\+)/gu
/**
 * Matches the characters of a text of several lines that cannot be seen or that can be mistaken for other text.
 * Indentation, tabs and line ends are usual in such a text, so they are not matched.
 */
const HIDDEN_IN_LINES =
  /(?!\r\n|[\n\t])[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800]|(?! )\p{Zs}|⟨(?=U\+)/gu

const codePoint = (character: string): string =>
  `⟨U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}⟩`

/** Returns a text from outside on one line, in which each character that cannot be seen is its code point. */
export const visible = (text: string): string => text.replaceAll(HIDDEN_IN_LINE, codePoint)

/** Returns a text of several lines from outside, in which each character that cannot be seen is its code point. */
export const visibleLines = (text: string): string => text.replaceAll(HIDDEN_IN_LINES, codePoint)
