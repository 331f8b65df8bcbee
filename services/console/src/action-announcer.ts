/**
 * Announces the actions of persons to all browsers, so that every open page shows an action within two seconds, while
 * the services are otherwise read at intervals of several seconds.
 *
 * A1  An action at this replica is announced as soon as its response is known. An action at another replica is found by
 *     the number of actions that all replicas share, at the latest after `ACTION_POLL_MS`.
 * A2  Before an announcement the console reads again what the pages take from its memory. If a service needs longer than
 *     `ACTION_READ_MS`, the announcement does not wait for it.
 * A3  The browsers then read again what they show. A further request to a service is therefore caused only by an action
 *     of a person.
 */
import type { Logger } from '@integration-host/shared/observability/logger'
import type { ActionCounter } from './session/stores.ts'
import type { Frames } from './view/frames.ts'

/**
 * The pause between two checks whether a person has acted at another replica of the console. Together with the next
 * interval, `ACTION_PAUSE_MS` in app/read-again.ts and the requests in between, it must stay below two seconds;
 * `action-announcer.test.ts` moves a clock through all of them.
 */
const ACTION_POLL_MS = 500
/** The time that the console has to read the services again before it announces an action to the browsers. */
const ACTION_READ_MS = 400

export interface ActionAnnouncerDeps {
  /** The counter that all replicas share; `null` if this process is the only replica. */
  readonly counter: ActionCounter | null
  /** Resolves when the services have been read again. */
  readonly readAgain: () => Promise<void>
  readonly frames: Pick<Frames, 'add'>
  readonly logger: Logger
}

export interface ActionAnnouncer extends AsyncDisposable {
  /** Announces an action that was executed, or whose outcome is unknown. */
  acted(): void
}

export function createActionAnnouncer(deps: ActionAnnouncerDeps): ActionAnnouncer {
  const { counter, readAgain, frames, logger } = deps
  let isClosed = false
  /** The number of actions that have been announced; `null` before the first read. */
  let announced: number | null = null
  let endPause = (): void => {}
  const pause = (ms: number): Promise<void> =>
    new Promise((resolve) => {
      const timer = setTimeout(resolve, ms)
      endPause = () => {
        clearTimeout(timer)
        resolve()
      }
    })

  async function announce(): Promise<void> {
    let timer: NodeJS.Timeout | undefined
    const deadline = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, ACTION_READ_MS)
    })
    await Promise.race([readAgain(), deadline])
    clearTimeout(timer)
    if (!isClosed) frames.add('acted', {})
  }

  let isFailing = false
  /** Calls the counter. While Redis is unavailable, requests of persons fail as well, so there are no actions. */
  async function counted(
    call: (counter: ActionCounter) => Promise<number>,
  ): Promise<number | null> {
    if (counter === null) return null
    try {
      const number = await call(counter)
      isFailing = false
      return number
    } catch (error) {
      if (!isFailing && !isClosed)
        logger.warn({ err: error }, 'the actions at other replicas of the console cannot be read')
      isFailing = true
      return null
    }
  }

  async function followOthers(): Promise<void> {
    while (!isClosed) {
      const number = await counted((shared) => shared.read())
      if (number !== null && announced !== null && number !== announced) void announce()
      announced = number ?? announced
      if (!isClosed) await pause(ACTION_POLL_MS)
    }
  }
  const following = counter === null ? null : followOthers()

  return {
    acted() {
      void announce()
      void counted((shared) => shared.increment()).then((number) => {
        // If another replica has counted an action meanwhile, the next poll finds a difference, and announces it.
        if (number !== null && announced === number - 1) announced = number
      })
    },
    async [Symbol.asyncDispose]() {
      isClosed = true
      endPause()
      await following
    },
  }
}

/**
 * The intervals from an action of a person until every open page shows it, in milliseconds. Their sum, together with the
 * requests in between, must stay below two seconds; `action-announcer.test.ts` moves a clock through all of them. The
 * pause between two reads of a page, `ACTION_PAUSE_MS` in app/read-again.ts, belongs to them.
 */
