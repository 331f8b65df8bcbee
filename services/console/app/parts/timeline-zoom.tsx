import { type PointerEvent, type RefObject, useId, useState } from 'react'
import type { TimeAxis } from '../time-axis.ts'
import { afterZoom, isDrag, rangeBetween, type TimeRange, type Zoom } from '../timeline-view.ts'

const STEPS = [
  { zoom: 'left', sign: '←', name: 'Show earlier times' },
  { zoom: 'out', sign: '−', name: 'Zoom out' },
  { zoom: 'in', sign: '+', name: 'Zoom in' },
  { zoom: 'right', sign: '→', name: 'Show later times' },
] as const satisfies readonly { zoom: Zoom; sign: string; name: string }[]

export interface ZoomButtonsProps {
  /** The axis of the whole timeline. */
  readonly axis: TimeAxis
  readonly whole: TimeRange
  /** The shown part; `null` if the whole timeline is shown. */
  readonly part: TimeRange | null
  readonly onShow: (range: TimeRange | null) => void
}

const WHOLE = 'The whole run is shown.'

/** The buttons that enlarge and move the timeline. A button that would change nothing is disabled, and says why. */
export function ZoomButtons({ axis, whole, part, onShow }: ZoomButtonsProps) {
  const id = useId()
  const reason = part === null ? id : undefined
  return (
    <span className="buttons zoom">
      {reason !== undefined && (
        <span id={id} className="unseen">
          {WHOLE}
        </span>
      )}
      {STEPS.map(({ zoom, sign, name }) => (
        <button
          key={zoom}
          type="button"
          aria-label={name}
          title={name}
          aria-disabled={part === null && zoom !== 'in'}
          aria-describedby={zoom === 'in' ? undefined : reason}
          onClick={() => {
            if (part !== null || zoom === 'in') onShow(afterZoom(axis, whole, part ?? whole, zoom))
          }}
        >
          {sign}
        </button>
      ))}
      <button
        type="button"
        aria-disabled={part === null}
        aria-describedby={reason}
        title={part === null ? WHOLE : undefined}
        onClick={() => {
          if (part !== null) onShow(null)
        }}
      >
        Whole run
      </button>
    </span>
  )
}

/** Two places on the drawing, from 0 to 1: where the drag began, and where the pointer is. */
type Places = readonly [number, number]

/** Lets a person select a range by dragging over the lanes in `list`. `axis` is the axis of the shown range. */
export function useDraggedRange(
  list: RefObject<HTMLElement | null>,
  axis: TimeAxis,
  whole: TimeRange,
  onShow: (range: TimeRange | null) => void,
) {
  const [places, setPlaces] = useState<Places | null>(null)
  const placeOf = ({ clientX }: PointerEvent): number => {
    const box = drawingOf(list)
    return box === undefined ? 0 : Math.min(1, Math.max(0, (clientX - box.left) / box.width))
  }
  const end = (): void => setPlaces(null)
  return {
    places,
    handlers: {
      onPointerDown(event: PointerEvent<HTMLElement>) {
        if (event.button !== 0 || (event.target as Element).closest('svg') === null) return
        event.currentTarget.setPointerCapture(event.pointerId)
        const place = placeOf(event)
        setPlaces([place, place])
      },
      onPointerMove(event: PointerEvent<HTMLElement>) {
        if (places !== null) setPlaces([places[0], placeOf(event)])
      },
      onPointerUp(event: PointerEvent<HTMLElement>) {
        if (places === null) return
        end()
        const place = placeOf(event)
        if (!isDrag(places[0], place)) return
        const range = rangeBetween(axis, whole, places[0], place)
        if (range !== null) onShow(range)
      },
      onPointerCancel: end,
    },
  }
}

/** Returns the box of the drawing in the first lane. The drawings of all lanes have the same left and right edge. */
const drawingOf = (list: RefObject<HTMLElement | null>): DOMRect | undefined =>
  list.current?.querySelector('svg')?.getBoundingClientRect()

interface DraggedRangeProps {
  readonly list: RefObject<HTMLElement | null>
  readonly places: Places | null
}

/** Shows the range while a person selects it. */
export function DraggedRange({ list, places }: DraggedRangeProps) {
  const box = places === null ? undefined : drawingOf(list)
  const frame = list.current?.getBoundingClientRect()
  if (places === null || box === undefined || frame === undefined) return null
  const left = Math.min(...places)
  return (
    <li
      aria-hidden="true"
      className="dragged"
      style={{
        left: box.left - frame.left + left * box.width,
        width: (Math.max(...places) - left) * box.width,
      }}
    />
  )
}
