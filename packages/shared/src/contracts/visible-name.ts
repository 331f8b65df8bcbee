/**
 * The rule for names that people read. Two names that look the same must not differ, and no name may look like nothing:
 * a person decides by such a name, for example which company to connect.
 */

/**
 * The characters that have no shape of their own: control and format characters, unpaired surrogates, private use, line
 * and paragraph separators, and all that Unicode lets a program leave out (`Default_Ignorable_Code_Point`), such as the
 * Hangul fillers, variation selectors and tag characters.
 */
const INVISIBLE = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/u

/** Returns whether every character of a text has a shape. */
export const hasOnlyVisible = (text: string): boolean => !INVISIBLE.test(text)

/** Returns whether a text can be a name: all its characters are visible, and one is a letter or a digit. */
export const isVisibleName = (text: string): boolean =>
  hasOnlyVisible(text) && /[\p{L}\p{N}]/u.test(text)

/**
 * Returns a text from outside as a text of one line with visible characters: invisible characters become spaces, and what
 * is longer than `longest` characters is cut off.
 */
export const visibleText = (text: string, longest: number): string => {
  const line = text
    .slice(0, 8 * longest)
    .replaceAll(new RegExp(INVISIBLE, 'gu'), ' ')
    .replaceAll(/\s+/g, ' ')
    .trim()
  const characters = Array.from(line)
  return characters.length <= longest ? line : `${characters.slice(0, longest - 1).join('')}…`
}
