import { defaultRangeExtractor, type Range, useWindowVirtualizer } from '@tanstack/react-virtual'
import {
  type FocusEvent,
  type KeyboardEvent,
  type ReactNode,
  useCallback,
  useEffect,
  useId,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
} from 'react'
import { keyOf, type ListedRun, type RunOrder, type VisibleRows } from '../run-list.ts'
import { useIsNarrow } from './run-filters.tsx'
import { useSettings } from '../settings.ts'
import { RunRowMenu } from './run-actions.tsx'
import { visible } from '../visible.ts'
import { RunRow } from './run-row.tsx'

/** The heights of a row in pixels. The style sheet has the same heights. */
const ROW_HEIGHTS = {
  columns: { comfortable: 34, compact: 28 },
  lines: { comfortable: 74, compact: 68 },
} as const
/** The number of characters of an id that fit on a line, and the height of each further line in pixels. */
const ID_LINE = { columns: 34, lines: 26 } as const
const ID_LINE_HEIGHT = 18
/** Ids of at most this length need a column of half the width. */
const SHORT_ID = 16
/** The number of rows that are rendered above and below the visible ones. */
const OVERSCAN = 6

export interface RunTableProps {
  readonly order: RunOrder
  readonly rows: readonly ListedRun[]
  readonly hasMore: boolean
  readonly companies: ReadonlyMap<string, string>
  readonly selected: ReadonlyMap<string, ListedRun>
  readonly onSelect: (runs: readonly ListedRun[], isSelected: boolean) => void
  readonly onVisible: (rows: VisibleRows) => void
}

/** Shows the list of runs. The page contains only the visible rows, so that a long list scrolls smoothly. */
export function RunTable(props: RunTableProps) {
  const { rows, hasMore, selected, onSelect, onVisible } = props
  const table = useRef<HTMLTableElement>(null)
  const [top, setTop] = useState(0)
  const [focused, setFocused] = useState<number | null>(null)
  const menuId = useId()
  const menuOpener = useRef<HTMLElement>(null)
  const [menuRun, setMenuRun] = useState<ListedRun | null>(null)
  const { density, shortcuts } = useSettings()
  const form = useIsNarrow() ? 'lines' : 'columns'
  // The position of the table is measured whenever the size of the page changes, because elements above the table may
  // grow.
  useLayoutEffect(() => {
    const observer = new ResizeObserver(() => {
      const body = table.current?.tBodies[0]
      if (body !== undefined) setTop(body.getBoundingClientRect().top + window.scrollY)
    })
    observer.observe(document.body)
    return () => observer.disconnect()
  }, [])
  // The focused row stays in the page. Otherwise scrolling would lose the focus.
  const rangeExtractor = useCallback(
    (range: Range) => {
      const indexes = defaultRangeExtractor(range)
      return focused === null || focused >= range.count || indexes.includes(focused)
        ? indexes
        : [...indexes, focused].toSorted((one, other) => one - other)
    },
    [focused],
  )
  const height = ROW_HEIGHTS[form][density]
  // Ids are shown whole, because those of a schedule differ only at their end. A long id makes its row higher.
  const heightOf = useCallback(
    (index: number) => {
      const id = visible(rows[index]?.TransactionID ?? '')
      return height + (Math.max(1, Math.ceil(id.length / ID_LINE[form])) - 1) * ID_LINE_HEIGHT
    },
    [rows, height, form],
  )
  // React Compiler is not used.
  // oxlint-disable-next-line react/incompatible-library
  const virtual = useWindowVirtualizer({
    count: rows.length,
    estimateSize: heightOf,
    overscan: OVERSCAN,
    scrollMargin: top,
    rangeExtractor,
  })
  useEffect(() => virtual.measure(), [virtual, heightOf])
  const items = virtual.getVirtualItems()
  const first = virtual.range?.startIndex ?? 0
  const last = virtual.range?.endIndex ?? 0
  useEffect(() => onVisible({ first, last }), [onVisible, first, last])

  /** Returns the index of the run in whose row an element is; `null` for the head of the table. */
  const indexOf = (element: EventTarget): number | null => {
    const row = Number((element as HTMLElement).closest('tr')?.getAttribute('aria-rowindex'))
    return row >= 2 ? row - 2 : null
  }
  const move = (index: number): void => {
    virtual.scrollToIndex(index, { align: 'auto' })
    setFocused(index)
    // The row may not be in the page yet. The scrolling adds the row with the next animation frame.
    requestAnimationFrame(() =>
      table.current?.querySelector<HTMLElement>(`tr[aria-rowindex="${index + 2}"] a`)?.focus(),
    )
  }
  const onKey = (event: KeyboardEvent<HTMLTableElement>): void => {
    const index = indexOf(event.target)
    if (index === null || shortcuts === 'off') return
    if (event.ctrlKey || event.metaKey || event.altKey) return
    const run = rows[index]
    if (event.key === 'j' && index + 1 < rows.length) move(index + 1)
    else if (event.key === 'k' && index > 0) move(index - 1)
    else if (event.key === 'x' && run !== undefined) onSelect([run], !selected.has(keyOf(run)))
    else return
    event.preventDefault()
  }
  const openMenu = useCallback((run: ListedRun, button: HTMLElement): void => {
    menuOpener.current = button
    setMenuRun(run)
  }, [])
  const onBlur = (event: FocusEvent<HTMLTableElement>): void => {
    if (!event.currentTarget.contains(event.relatedTarget)) setFocused(null)
  }

  const body: ReactNode[] = []
  let end = top
  for (const { index, start, end: next } of items) {
    const run = rows[index]
    if (run === undefined) continue
    if (start > end) body.push(<Spacer key={`before ${index}`} height={start - end} />)
    body.push(
      <RunRow
        key={keyOf(run)}
        form={form}
        run={run}
        index={index}
        height={heightOf(index)}
        order={props.order}
        companies={props.companies}
        isSelected={selected.has(keyOf(run))}
        onSelect={onSelect}
        menuId={menuId}
        onMenu={openMenu}
      />,
    )
    end = next
  }
  const rest = top + virtual.getTotalSize() - end
  if (rest > 0) body.push(<Spacer key="rest" height={rest} />)
  const hasLongIds = useMemo(
    () => rows.some(({ TransactionID }) => TransactionID.length > SHORT_ID),
    [rows],
  )
  const areAllSelected = rows.length > 0 && rows.every((run) => selected.has(keyOf(run)))

  return (
    <div className={`panel flush runs in-${form}`}>
      {/* The table handles the keys that a person presses in the links and check boxes of its rows. */}
      {/* oxlint-disable-next-line jsx-a11y/no-noninteractive-element-interactions */}
      <table
        ref={table}
        aria-label="Runs"
        aria-rowcount={hasMore ? -1 : rows.length + 1}
        onKeyDown={onKey}
        onFocus={({ target }) => setFocused(indexOf(target))}
        onBlur={onBlur}
      >
        <thead>
          <tr aria-rowindex={1}>
            <th scope="col" className="pick">
              <input
                type="checkbox"
                aria-label="Select all runs that are loaded"
                checked={areAllSelected}
                ref={(input) => {
                  if (input !== null) input.indeterminate = selected.size > 0 && !areAllSelected
                }}
                onChange={() => onSelect(rows, !areAllSelected)}
              />
            </th>
            {form === 'lines' ? (
              <th scope="col">Run</th>
            ) : (
              <>
                <th scope="col" className="narrow">
                  Status
                </th>
                <th scope="col" className={hasLongIds ? 'id' : 'id short'}>
                  Transaction
                </th>
                <th scope="col">Why and where</th>
                <th scope="col" className="wider">
                  Company
                </th>
                <th scope="col" className="changed">
                  Changed
                </th>
              </>
            )}
            <th scope="col" className="menu-column">
              <span className="unseen">Menu</span>
            </th>
          </tr>
        </thead>
        <tbody>{body}</tbody>
      </table>
      {/* The buttons of the rows refer to the menu even before a person presses one, so the menu is always rendered. */}
      {rows[0] !== undefined && (
        <RunRowMenu id={menuId} run={menuRun ?? rows[0]} opener={menuOpener} />
      )}
    </div>
  )
}

function Spacer({ height }: { readonly height: number }) {
  return <tr aria-hidden="true" className="spacer" style={{ height }} />
}
