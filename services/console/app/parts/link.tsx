import type { MouseEvent, ReactNode } from 'react'
import { goTo } from '../router.ts'
import { Outside } from './elements.tsx'
import errors from '../../../../docs/errors.md'
import runbook from '../../../../docs/runbook.md'

export interface LinkProps {
  readonly to: string
  readonly className?: string
  readonly isCurrent?: boolean
  /** The text of the link, if it comes from outside. */
  readonly text?: string
  readonly children?: ReactNode
}

/** A link to a section of a document, which the browser opens in a new tab. */
export function DocumentLink({ to, text, children }: Pick<LinkProps, 'to' | 'text' | 'children'>) {
  return (
    <a href={to} target="_blank" rel="noopener">
      {text === undefined ? children : <Outside text={text} />}
    </a>
  )
}

/** A link to a page of the console. With a modifier key it opens a new tab, as every link does. */
export function Link({ to, className, isCurrent = false, text, children }: LinkProps) {
  const follow = (event: MouseEvent<HTMLElement>): void => {
    if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey)
      return
    event.preventDefault()
    // The navigation is a drawer on a narrow screen. It has to close when a person follows a link.
    event.currentTarget.closest<HTMLElement>('[popover]')?.hidePopover()
    goTo(to)
  }
  return (
    <a
      href={to}
      className={className}
      onClick={follow}
      aria-current={isCurrent ? 'page' : undefined}
    >
      {text === undefined ? children : <Outside text={text} />}
    </a>
  )
}

/**
 * Returns the address of a section of a document of this repository, which the console serves as text. A browser that
 * knows text fragments scrolls to the section.
 */
const sectionOf = (document: string, heading: string): string =>
  // A hyphen would have a meaning of its own in a text fragment.
  `${new URL(document, import.meta.url).href}#:~:text=${encodeURIComponent(heading.toWellFormed()).replaceAll('-', '%2D')}`

/** Returns the address of the runbook's section about a condition, or of another section. */
export const runbookSection = (heading: string): string => sectionOf(runbook, `# ${heading}`)

/** Returns the address of the section about an error code. */
export const errorSection = (code: string): string => sectionOf(errors, `# ${code}`)
