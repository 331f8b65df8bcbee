/**
 * Hostile texts: texts that would do harm if a page interpreted them as markup, as code, as a URL, or as a part of the
 * surrounding text.
 */

const ALERT = 'alert(1)'

/**
 * Each text, followed by its representation on a page if this differs. A page shows invisible characters by their code
 * points.
 */
const TEXTS: readonly (readonly [text: string, shown?: string])[] = [
  [`<script>${ALERT}</script>`],
  [`<svg/onload=${ALERT}>`],
  [`<img src=x onerror=${ALERT}>`],
  [`"><iframe srcdoc="<script>parent.${ALERT}</script>">`],
  [`' onfocus=${ALERT} autofocus tabindex=0 x='`],
  [`javascript:${ALERT}//`],
  [`data:text/html,<script>${ALERT}</script>`],
  ['//evil.invalid/x'],
  ['https://evil.invalid/?a=b#c'],
  [`[a link](javascript:${ALERT})`],
  ['![an image](https://evil.invalid/p.png)'],
  ['`code` **bold** <b>bold</b>'],
  [`\${${ALERT}}{{constructor.constructor('${ALERT}')()}}<%=${ALERT}%>`],
  ['</style><style>*{background:url(https://evil.invalid/)}</style>'],
  ['position:fixed;inset:0;background:url(https://evil.invalid/)'],
  [`</title></textarea></noscript></template><script>${ALERT}</script>`],
  [`--><!--<script>${ALERT}//`],
  ['&lt;script&gt;&#x3c;&nbsp;'],
  ['\u202egpj.66\u202c', '⟨U+202E⟩gpj.66⟨U+202C⟩'],
  ['\u206766\u2069', '⟨U+2067⟩66⟨U+2069⟩'],
  ['66\u200b', '66⟨U+200B⟩'],
  ['\ufeff66\u2060', '⟨U+FEFF⟩66⟨U+2060⟩'],
  ['66\u3164\u00a0', '66⟨U+3164⟩⟨U+00A0⟩'],
  ['⟨U+202E⟩66', '⟨U+27E8⟩U+202E⟩66'],
  ['66'],
  ['שלום 66'],
  ['😀👩\u200d💻', '😀👩⟨U+200D⟩💻'],
  ['x'.repeat(128)],
  ['../x'],
  ['a/b'],
  ['%2e%2e'],
  ['%00%0d%0a'],
  ['__proto__'],
  ['constructor'],
  ['?run=7&status=Failed#x'],
  ['a b+c;d=e\\f'],
]
/** Texts with characters that an id must not contain, but that other fields may contain. */
const CONTROLS: typeof TEXTS = [
  ['\0null\u0007', '⟨U+0000⟩null⟨U+0007⟩'],
  ['\u001b[31mred\u001b[0m', '⟨U+001B⟩[31mred⟨U+001B⟩[0m'],
  ['\ud800', '⟨U+D800⟩'],
]

export interface HostileText {
  readonly text: string
  readonly shown: string
}

const entryOf = ([text, shown = text]: (typeof TEXTS)[number]): HostileText => ({ text, shown })

/** The texts that can be the id of a transaction. */
export const HOSTILE_IDS: readonly HostileText[] = TEXTS.map(entryOf)
export const HOSTILE_TEXTS: readonly HostileText[] = [...TEXTS, ...CONTROLS].map(entryOf)
