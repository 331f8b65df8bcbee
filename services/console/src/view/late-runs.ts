/** Says why no worker claims the due runs of a process, as far as the console knows the reason. */
import { type Installation, responding } from './installation.ts'

export interface LateReason {
  readonly reason: string
  readonly remedy: string
  /** Whether the reason has a condition of its own, so that late runs are only its consequence. */
  readonly isShown: boolean
}

/** Returns the reason why the due runs of a process are not claimed; `null` if the reason is not known. */
export function lateReason(installation: Installation, process: string): LateReason | null {
  const coordinators = responding(installation, 'coordinator')
  const state = installation.processes?.find(({ name }) => name === process)
  if (coordinators.length === 0)
    return { reason: 'No coordinator responds.', remedy: 'Start a coordinator.', isShown: true }
  if (state?.isLoaded === false)
    return {
      reason: 'No coordinator has loaded the process.',
      remedy: 'Deploy its definition, or cancel its runs.',
      isShown: false,
    }
  if (state?.isPaused === true)
    return {
      reason: 'The process is paused.',
      remedy: 'Resume it when the reason is over.',
      isShown: true,
    }
  const isOffline = coordinators.every(({ summary }) => summary?.Coordinator?.Online === false)
  if (state?.needsInternet === true && isOffline)
    return {
      reason: 'The process needs the internet, and no probe reaches it.',
      remedy: 'Check the network of the coordinator. The steps start again by themselves.',
      isShown: true,
    }
  const waiting = coordinators.every(({ report }) => report?.status === 'waiting')
  if (waiting) {
    const [dependency] = Object.entries(coordinators[0]?.report?.dependencies ?? {}).find(
      ([, { status }]) => status !== 'up',
    ) ?? ['a dependency']
    return {
      reason: `The coordinator waits for ${dependency}.`,
      remedy: 'Restore this dependency. The steps start again by themselves.',
      isShown: true,
    }
  }
  return null
}
