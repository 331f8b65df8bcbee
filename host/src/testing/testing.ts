/**
 * `integration-host/testing`: runs processes in a test, with fake targets and a clock that the test moves.
 *
 * @module integration-host/testing
 */
export type {
  BookEdit,
  BookObject,
  CompanyFault,
  CompanyOptions,
  StoredObject,
  TestCompany,
} from './company.ts'
export type { ExpiryNotice } from './custody.ts'
export type { Duration } from './duration.ts'
export type { CallExpectation } from './expected-calls.ts'
export type {
  FakeTarget,
  TargetCall,
  TargetReplies,
  TargetReply,
  TargetResponse,
} from './fake-target.ts'
export type { ProcessSettingValues, TestProcess } from './load-test-processes.ts'
export type { KillPoint } from './replica.ts'
export {
  type BookChange,
  type RunOptions,
  startTestHost,
  type TestHost,
  type TestHostOptions,
} from './test-host.ts'
export { startTargetServer, type TargetServer } from './target-server.ts'
export type { RunStatus, RunView, TestRun } from './test-run.ts'
