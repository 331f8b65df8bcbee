import { failedAttempt, type FakeInstallation } from './fake-installation.ts'

/** The content of a run with 5,000 attempts, of which the last one got a response of 1 MB. */
export const largeRun = {
  Status: 'Retrying',
  Attempts: Array.from({ length: 5_000 }, (_, index) =>
    failedAttempt({
      Attempt: index + 1,
      StartedAt: new Date(Date.UTC(2026, 0, 1) + index * 1_000).toISOString(),
      FinishedAt: new Date(Date.UTC(2026, 0, 1) + index * 1_000 + 10).toISOString(),
    }),
  ),
  Items: [
    {
      StepName: 'order',
      Status: 'Retrying',
      Attempt: 5_000,
      IdempotencyKey: 'key',
      ResponseStatus: 503,
      ResponseBody: 'x'.repeat(1_000_000),
      Data: null,
      Error: null,
      StartedAt: null,
      FinishedAt: null,
    },
  ],
} satisfies Parameters<FakeInstallation['add']>[1]
