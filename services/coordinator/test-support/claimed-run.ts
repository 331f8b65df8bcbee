import type { ClaimedRun } from '../src/run/run.ts'

/** Returns a run at its first attempt of the step `first` of the process `P`, with these members changed. */
export const claimedRun = (change: Partial<ClaimedRun> = {}): ClaimedRun => ({
  Process: 'P',
  TransactionID: '1',
  ReplayID: 0,
  Status: 'Running',
  StepName: 'first',
  InitialData: null,
  Realm: null,
  Version: 1,
  Attempt: 1,
  NextAttemptAt: null,
  WaitingFor: null,
  LastError: null,
  ErrorClass: null,
  InDoubt: false,
  Priority: 'normal',
  DefinitionVersion: null,
  DeadlineAt: null,
  CreatedAt: '',
  UpdatedAt: '',
  CompletedAt: null,
  ...change,
})
