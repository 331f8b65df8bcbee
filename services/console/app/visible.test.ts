import { describe, expect, it } from 'vitest'
import { visible, visibleLines } from './visible.ts'

describe('the display of text that comes from outside the console', () => {
  it.each([
    ['an usual id', 'order-66', 'order-66'],
    ['words, accents and emoji', 'Café Zoë 😀 שלום', 'Café Zoë 😀 שלום'],
    ['a right-to-left override', 'a\u202eb', 'a⟨U+202E⟩b'],
    ['an isolate and its end', '\u2066a\u2069', '⟨U+2066⟩a⟨U+2069⟩'],
    ['zero-width characters', '6\u200b6\u200d\ufeff', '6⟨U+200B⟩6⟨U+200D⟩⟨U+FEFF⟩'],
    ['a variation selector', '6\ufe0f', '6⟨U+FE0F⟩'],
    ['fillers that look like a space', '\u3164\u2800\u00a0', '⟨U+3164⟩⟨U+2800⟩⟨U+00A0⟩'],
    ['control characters', '\0\u001b[31m\u007f\u0085', '⟨U+0000⟩⟨U+001B⟩[31m⟨U+007F⟩⟨U+0085⟩'],
    ['line separators', 'a\u2028b\u2029', 'a⟨U+2028⟩b⟨U+2029⟩'],
    ['tags beyond the basic plane', 'a\u{e0041}', 'a⟨U+E0041⟩'],
    ['private characters', '\ue000', '⟨U+E000⟩'],
    ['an unpaired surrogate', '\ud83d!', '⟨U+D83D⟩!'],
    ['spaces at the ends and in a row', ' a  b ', '⟨U+0020⟩a⟨U+0020⟩ b⟨U+0020⟩'],
    ['a text that looks like a replacement', 'a⟨U+202E⟩b', 'a⟨U+27E8⟩U+202E⟩b'],
  ])('a text on one line is shown with visible replacements where needed: %s', (_, text, shown) => {
    expect(visible(text)).toBe(shown)
  })

  it('in a text on one line, line ends and tabs are shown as visible replacements', () => {
    expect(visible('66\r\n\t')).toBe('66⟨U+000D⟩⟨U+000A⟩⟨U+0009⟩')
  })

  it('a text of several lines keeps its line ends, tabs and indentation, and every other hidden character is shown', () => {
    const text = '{\r\n  "a":\t1\n}'
    expect(visibleLines(text)).toBe(text)
    expect(visibleLines('a\rb\u202e\0\u00a0')).toBe('a⟨U+000D⟩b⟨U+202E⟩⟨U+0000⟩⟨U+00A0⟩')
  })
})
