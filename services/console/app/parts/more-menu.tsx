import { type ReactNode, type RefObject, type ToggleEvent, useId, useRef } from 'react'

const GAP_PX = 4
const WIDTH_PX = 260
const MARGIN_PX = 16

export interface MoreMenuProps {
  /** The object of the actions in the menu, such as `run 0 of 66`. */
  readonly object: string
  readonly children: ReactNode
}

/** A button that opens a menu of further actions. */
export function MoreMenu({ object, children }: MoreMenuProps) {
  const id = useId()
  const button = useRef<HTMLButtonElement>(null)
  return (
    <>
      <button type="button" ref={button} popoverTarget={id} aria-label={`More about ${object}`}>
        ⋯
      </button>
      <Menu id={id} opener={button}>
        {children}
      </Menu>
    </>
  )
}

export interface MenuProps {
  /** The id that the button of the menu has as its `popoverTarget`. */
  readonly id: string
  /** The button beside which the menu opens. */
  readonly opener: RefObject<HTMLElement | null>
  readonly onToggle?: (isOpen: boolean) => void
  readonly children: ReactNode
}

/** A menu of actions. A click on one of the actions closes it. */
export function Menu({ id, opener, onToggle, children }: MenuProps) {
  const menu = useRef<HTMLDivElement>(null)
  const close = (): void => menu.current?.hidePopover()
  const place = ({ newState }: ToggleEvent): void => {
    const box = opener.current?.getBoundingClientRect()
    if (newState !== 'open' || box === undefined || menu.current === null) return
    const left = Math.min(box.left, window.innerWidth - WIDTH_PX - MARGIN_PX)
    menu.current.style.left = `${Math.max(left, MARGIN_PX)}px`
    menu.current.style.top = `${box.bottom + GAP_PX}px`
    // The menu is closed when the page scrolls, because it does not move with the page.
    window.addEventListener('scroll', close, { once: true })
  }
  /** Places the menu above its button if there is not enough room below the button. */
  const fit = ({ newState }: ToggleEvent): void => {
    onToggle?.(newState === 'open')
    const box = opener.current?.getBoundingClientRect()
    if (newState !== 'open' || box === undefined || menu.current === null) return
    const { height, bottom } = menu.current.getBoundingClientRect()
    if (bottom > window.innerHeight && box.top > height)
      menu.current.style.top = `${box.top - height - GAP_PX}px`
  }
  return (
    // The handler receives clicks on the buttons in the menu, so this element itself needs no role and no key handler.
    // oxlint-disable-next-line jsx-a11y/click-events-have-key-events, jsx-a11y/no-static-element-interactions
    <div
      id={id}
      ref={menu}
      popover="auto"
      className="menu more"
      onBeforeToggle={place}
      onToggle={fit}
      onClick={close}
    >
      {children}
    </div>
  )
}
