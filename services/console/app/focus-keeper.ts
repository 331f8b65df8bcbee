/**
 * Keeps the focus of a person who uses the keyboard. A browser drops the focus if the focused element is removed, as the
 * button of an action that is not possible any more. The focus then moves to the first of these elements that exists:
 *
 * 1. the same control, if a part of the page was rendered again, as the filters are when the filter changes;
 * 2. the first control in the smallest part of the page that contained the element and still exists, such as `Resume…`
 *    in place of `Pause…`, or the next entry of a list;
 * 3. the control that had the focus before;
 * 4. the heading of the page.
 */
const CONTROLS = 'a[href], button, input, select, textarea, summary'
/** The number of elements that are kept for the third rule. */
const MAX_KEPT = 20

interface Focused {
  readonly element: HTMLElement
  /** What the control is called, to recognize it after it was rendered again. */
  readonly name: string
  /** The parts of the page that contain the control, the smallest first and the main part last. */
  readonly parents: readonly HTMLElement[]
}

function nameOf(element: HTMLElement): string {
  const name = element.getAttribute('name') ?? element.getAttribute('aria-label')
  return `${element.tagName} ${name ?? element.textContent}`
}

function parentsOf(element: HTMLElement): readonly HTMLElement[] {
  const parents: HTMLElement[] = []
  for (let parent = element.parentElement; parent !== null; parent = parent.parentElement)
    if (parent.closest('main') !== null) parents.push(parent)
  return parents
}

function successorOf(lost: Focused, before: readonly Focused[]): HTMLElement | null {
  for (const parent of lost.parents.filter(({ isConnected }) => isConnected)) {
    const controls = [...parent.querySelectorAll<HTMLElement>(CONTROLS)].filter((control) =>
      control.checkVisibility(),
    )
    const same = controls.find((control) => nameOf(control) === lost.name)
    if (same !== undefined) return same
    if (parent.tagName === 'MAIN') break
    if (controls[0] !== undefined) return controls[0]
  }
  return before.findLast(({ element }) => element.isConnected)?.element ?? null
}

/** Begins to keep the focus in `app`. Called once, before any page is shown. */
export function keepFocus(app: HTMLElement): void {
  let focused: readonly Focused[] = []
  document.addEventListener('pointerdown', () => void (focused = []), { capture: true })
  app.addEventListener('focusin', ({ target }) => {
    if (target instanceof HTMLElement && target.matches(':focus-visible'))
      focused = [
        ...focused.slice(1 - MAX_KEPT),
        { element: target, name: nameOf(target), parents: parentsOf(target) },
      ]
  })
  new MutationObserver(() => {
    const last = focused.at(-1)
    if (last?.element.isConnected !== false || document.activeElement !== document.body) return
    const successor = successorOf(last, focused.slice(0, -1))
    // A page that is opened moves the focus to its heading itself, so its place on the screen stays as it is.
    if (successor === null) app.querySelector<HTMLElement>('h1')?.focus({ preventScroll: true })
    else successor.focus()
  }).observe(app, { childList: true, subtree: true })
}
