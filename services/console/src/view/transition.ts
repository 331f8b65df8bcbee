import { StreamedTransition } from '@integration-host/shared/contracts/events'
import type { z } from 'zod'

/** The members of a transition that the console uses. */
export const Transition = StreamedTransition.pick({
  Process: true,
  TransactionID: true,
  ReplayID: true,
  Status: true,
  StepName: true,
  ErrorClass: true,
  ProviderError: true,
  WaitingFor: true,
  Version: true,
  At: true,
  First: true,
})
export type Transition = z.output<typeof Transition>
