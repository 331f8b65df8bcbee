import { Component, type ReactNode, Suspense, useEffect } from 'react'
import { focusHeading } from '../router.ts'

/**
 * Shows a page whose program may still have to be loaded. If the program cannot be loaded or fails, shows what to do.
 */
export function Later({ children }: { readonly children: ReactNode }) {
  return (
    <Failures>
      <Suspense fallback={<p className="muted">The page is being loaded.</p>}>
        {children}
        <Shown />
      </Suspense>
    </Failures>
  )
}

/** Shows a part of a page whose program may still have to be loaded. If this part fails, the rest of the page stays. */
export function LaterPart({ children }: { readonly children: ReactNode }) {
  return (
    <Failures isPart>
      <Suspense>{children}</Suspense>
    </Failures>
  )
}

/**
 * Moves the focus to the heading of the page. This component is rendered together with the page, because the
 * heading did not exist when the person followed the link.
 */
function Shown() {
  useEffect(focusHeading, [])
  return null
}

interface FailuresState {
  readonly hasFailed: boolean
}

interface FailuresProps {
  readonly children: ReactNode
  readonly isPart?: boolean
}

class Failures extends Component<FailuresProps, FailuresState> {
  override state: FailuresState = { hasFailed: false }

  static getDerivedStateFromError(): FailuresState {
    return { hasFailed: true }
  }

  override render(): ReactNode {
    if (!this.state.hasFailed) return this.props.children
    return (
      <>
        {this.props.isPart !== true && <h1 tabIndex={-1}>This page cannot be shown</h1>}
        <p className="failure" role="alert">
          {this.props.isPart === true && 'This part of the page cannot be shown. '}Its program could
          not be loaded, or has failed. After an upgrade of the console, loading the page again
          helps.
        </p>
        <p>
          <button type="button" onClick={() => location.reload()}>
            Load the page again
          </button>
        </p>
      </>
    )
  }
}
