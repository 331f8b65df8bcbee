import { Component, type ReactNode, Suspense, useEffect } from 'react'
import { focusHeading } from '../router.ts'

/** Shows a page whose program may still have to be loaded, and what to do if it cannot be loaded or fails. */
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

/**
 * Rendered together with the page, and moves the focus to its heading. The link was followed before the heading
 * existed.
 */
function Shown() {
  useEffect(focusHeading, [])
  return null
}

interface FailuresState {
  readonly hasFailed: boolean
}

class Failures extends Component<{ readonly children: ReactNode }, FailuresState> {
  override state: FailuresState = { hasFailed: false }

  static getDerivedStateFromError(): FailuresState {
    return { hasFailed: true }
  }

  override render(): ReactNode {
    if (!this.state.hasFailed) return this.props.children
    return (
      <>
        <h1 tabIndex={-1}>This page cannot be shown</h1>
        <p className="failure" role="alert">
          Its program could not be loaded, or has failed. After an upgrade of the console, loading
          the page again helps.
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
