/**
 * Fills a fake installation with hostile texts, such as markup and scripts. Every field whose value comes from outside
 * gets every text.
 */
import type { CredentialView } from '@integration-host/shared/contracts/credential'
import { failedAttempt, type FakeInstallation, PROCESS } from './fake-installation.ts'
import { HOSTILE_IDS, HOSTILE_TEXTS } from './hostile-texts.ts'

const AT = '2026-11-22T02:41:00.000Z'
/** The id of the run in which each list has one entry for each hostile text. */
export const LOADED = 'loaded'
/** All hostile texts joined into one string. */
export const ALL = HOSTILE_TEXTS.map(({ text }) => text)
  .join(' ')
  .toWellFormed()

/** Adds runs, actions, companies and other objects, whose fields contain the hostile texts. */
export function fill(fake: FakeInstallation): void {
  const texts = HOSTILE_TEXTS.map(({ text }) => text)
  for (const { text } of HOSTILE_IDS)
    fake.add([text], {
      Status: 'Retrying',
      StepName: text,
      ErrorClass: text,
      Realm: text,
      LastError: text,
      InitialData: text,
    })
  fake.add([LOADED], {
    Status: 'Retrying',
    LastError: ALL,
    InitialData: { [ALL]: texts },
    Tags: Object.fromEntries(texts.map((text) => [text, text])),
    DefinitionVersion: ALL,
    LeaseOwner: ALL,
    Items: texts.map((text) => ({
      StepName: text,
      Status: 'Failed',
      Attempt: 1,
      IdempotencyKey: text,
      ResponseStatus: 200,
      ResponseBody: text,
      Data: text,
      Error: text,
      StartedAt: AT,
      FinishedAt: AT,
    })),
    Attempts: texts.map((text) =>
      failedAttempt({
        StepName: text,
        Outcome: text,
        Error: text,
        Request: { Method: text, Url: text },
        TraceId: text,
        ResponseId: text,
      }),
    ),
  })
  for (const [index, text] of texts.entries()) {
    fake.actions.push({
      ID: index + 1,
      At: AT,
      KeyID: text,
      Person: text,
      Action: text,
      Process: text.toWellFormed(),
      TransactionID: text.toWellFormed(),
      ReplayID: 0,
      Realm: null,
      Reason: text,
      Outcome: text,
      OperationID: null,
    })
    fake.audit.push({
      Seq: index + 1,
      At: AT,
      Who: `key console for ${text}`,
      What: 'faulted',
      Name: `ACC-${index}`,
      Version: 1,
      Outcome: text,
      TraceId: text,
      Previous: '0'.repeat(64),
      Hash: '0'.repeat(64),
    })
    fake.credentials.push(brokenCompany(index, text))
    fake.letters.push({
      ID: index + 1,
      Process: PROCESS,
      MessageID: text,
      Reason: text,
      At: AT,
      TransactionID: text,
      ReplayID: 0,
      StepName: text,
      Content: text,
      Encoding: 'text',
      ContentBytes: text.length,
    })
    fake.calls.push({
      At: new Date(Date.parse(AT) + index).toISOString(),
      Method: text,
      Path: text,
      Status: 503,
      Code: text,
      ProviderError: text,
      DurationMs: 1,
      WaitedMs: 0,
      Attempts: 1,
      IntuitTid: text,
      RequestID: text,
    })
    fake.schedules.push({
      Process: PROCESS,
      Name: text.toWellFormed(),
      Cron: text,
      TimeZone: text,
      Each: text,
      CatchUp: 'last',
      JitterSeconds: 0,
      NextTimes: [],
      LastTime: null,
      OpenTime: null,
      LagSeconds: 0,
      Paused: true,
      PausedAt: AT,
      PausedBy: text,
      Reason: text,
      RemovedAt: null,
    })
  }
  fake.operations.push({
    ID: 'op',
    Action: ALL,
    Process: ALL,
    Filter: { class: texts },
    IdCount: null,
    FromStep: ALL,
    PerSecond: 1,
    DryRun: false,
    Status: 'Paused',
    StatusReason: ALL,
    KeyID: ALL,
    Person: ALL,
    Reason: ALL,
    Done: 0,
    Skipped: 0,
    Failed: texts.length,
    FailedByCode: Object.fromEntries(texts.map((text) => [text, 1])),
    CreatedAt: AT,
    UpdatedAt: AT,
    FinishedAt: null,
    Failures: HOSTILE_IDS.map(({ text }) => ({ TransactionID: text, ReplayID: 0, Code: text })),
    Matches: [],
  })
  fake.process = {
    Paused: true,
    PausedAt: AT,
    PausedBy: ALL,
    Reason: ALL,
    Version: ALL,
    Steps: texts,
  }
  fake.dependencies = { [ALL]: { status: 'down', since: AT, reason: ALL, notes: texts } }
}

const brokenCompany = (index: number, text: string): CredentialView => ({
  Name: `ACC-${index}`,
  Environment: String(index),
  Expiry: AT,
  Status: 'faulted',
  State: 'must_reconnect',
  Label: text,
  Version: 1,
  RefreshedAt: AT,
  Attempts: 1,
  Fault: {
    Code: text,
    Message: text,
    At: AT,
    Attempts: 1,
    TraceId: text,
    Remedy: text,
    Final: true,
  },
})
