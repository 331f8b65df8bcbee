import { createContext, type ReactNode, use, useId } from 'react'
import type { SessionView } from '../../src/contracts/session.ts'
import { useReach } from '../reach.ts'

const OFFLINE = 'There is no connection to the console.'

/** Returns the reason why an action is not possible now: `reason` if given, or else that there is no connection. */
export function useBlocked(reason?: string): string | undefined {
  const isReachable = useReach()
  return reason ?? (isReachable ? undefined : OFFLINE)
}

/** The session of the person who uses the page. */
export const SessionContext = createContext<SessionView | null>(null)

/** Returns the session. All pages except the sign-in page have one. */
export function useSession(): SessionView {
  const session = use(SessionContext)
  if (session === null) throw new Error('this part of the page is not within a SessionContext')
  return session
}

/** Returns the reason why the person may not act; `undefined` for an operator. */
export const useRole = (): string | undefined =>
  useSession().Role === 'operator' ? undefined : 'This needs the role operator.'

/** Returns the reason why the person may not see the data of runs; `undefined` if the person may see it. */
export const useDataReason = (): string | undefined =>
  useSession().SeesData ? undefined : 'This needs the right to see data.'

export interface BlockableButtonProps {
  /** The reason why the action is not possible now; `undefined` if the action is possible. */
  readonly blocked?: string | undefined
  readonly className?: string
  readonly onClick: () => void
  readonly children: ReactNode
}

/**
 * A button that begins an action. If the action is not possible or the console cannot be reached, the button stays
 * visible and shows the reason, which screen readers announce as well.
 */
export function BlockableButton({ blocked, className, onClick, children }: BlockableButtonProps) {
  const id = useId()
  const reason = useBlocked(blocked)
  return (
    <>
      <button
        type="button"
        className={className}
        aria-disabled={reason !== undefined}
        aria-describedby={reason === undefined ? undefined : id}
        title={reason}
        onClick={() => {
          if (reason === undefined) onClick()
        }}
      >
        {children}
      </button>
      {reason !== undefined && (
        <span id={id} className="unseen">
          {reason}
        </span>
      )}
    </>
  )
}

/** Shows in an open dialog why its action is not possible now. Screen readers announce the reason. */
export function BlockedNotice() {
  const reason = useBlocked()
  return (
    <output className="muted">
      {reason !== undefined && `${reason} The action is possible again when it is back.`}
    </output>
  )
}
