import type { MouseEvent, ReactNode } from 'react'
import { goTo } from '../router.ts'

export interface LinkProps {
  readonly to: string
  readonly className?: string
  readonly isCurrent?: boolean
  readonly children: ReactNode
}

/** A link to a section of a document, which the browser opens in a new tab. */
export function DocumentLink({ to, children }: Pick<LinkProps, 'to' | 'children'>) {
  return (
    <a href={to} target="_blank" rel="noopener">
      {children}
    </a>
  )
}

/** A link to a page of the console. With a modifier key it opens a new tab, as every link does. */
export function Link({ to, className, isCurrent = false, children }: LinkProps) {
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
      {children}
    </a>
  )
}
