/**
 * Whether a run waits because its step has called `waitFor`, for example because it polls the status of something. The
 * coordinator stores such a run as `Retrying`, but nothing has failed.
 */
export const asksAgain = (run: {
  readonly Status: string
  readonly ErrorClass: string | null
}): boolean => run.Status === 'Retrying' && run.ErrorClass === 'step_waits'
