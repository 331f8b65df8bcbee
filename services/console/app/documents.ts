/**
 * The documents of this repository to which the pages refer. The console serves them as text. A browser that knows text
 * fragments scrolls to the named section.
 */
import errors from '../../../docs/errors.md'
import runbook from '../../../docs/runbook.md'

const sectionOf = (document: string, heading: string): string =>
  // A hyphen would have a meaning of its own in a text fragment.
  `${new URL(document, import.meta.url).href}#:~:text=${encodeURIComponent(heading.toWellFormed()).replaceAll('-', '%2D')}`

/** Returns the address of the runbook's section about a condition, or of another section. */
export const runbookSection = (heading: string): string => sectionOf(runbook, `# ${heading}`)

/** Returns the address of the section about an error code. */
export const errorSection = (code: string): string => sectionOf(errors, `# ${code}`)
