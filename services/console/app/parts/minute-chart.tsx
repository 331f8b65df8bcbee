import type { NowView } from '../../src/contracts/now.ts'

const WIDTH = 600
const HEIGHT = 56
const BAR = WIDTH / 60

/** Draws the ended runs of each of the last 60 minutes: the completed runs, and above them the failed runs. */
export function MinuteChart({ minutes }: { readonly minutes: NowView['Minutes'] }) {
  const highest = Math.max(1, ...minutes.map(({ Done, Failed }) => Done + Failed))
  const y = (count: number): number => (count / highest) * (HEIGHT - 6)
  const done = minutes.reduce((sum, { Done }) => sum + Done, 0)
  const failed = minutes.reduce((sum, { Failed }) => sum + Failed, 0)
  return (
    <figure className="chart">
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`Ended runs per minute in the last hour: ${done} completed, ${failed} failed, at most ${highest} in a minute`}
      >
        {minutes.map(({ Done, Failed }, index) => {
          const key = minutes.length - index
          const x = index * BAR + 1.5
          return (
            <g key={key}>
              <rect className="base" x={x} y={HEIGHT - 2} width={BAR - 3} height={2} rx={1} />
              {Done > 0 && (
                <rect
                  className="done"
                  x={x}
                  y={HEIGHT - 2 - y(Done)}
                  width={BAR - 3}
                  height={y(Done) + 2}
                  rx={1}
                />
              )}
              {Failed > 0 && (
                <rect
                  className="failed"
                  x={x}
                  y={HEIGHT - 2 - y(Done + Failed)}
                  width={BAR - 3}
                  height={y(Failed)}
                  rx={1}
                />
              )}
            </g>
          )
        })}
      </svg>
      <figcaption>
        <span>an hour ago</span>
        <span>per minute: completed, and failed above</span>
        <span>now</span>
      </figcaption>
    </figure>
  )
}
