/** Reads what the files of earlier versions contain instead of rows of `Records`. */
import { type CursorRow, CURSORS, DELIVERY } from '../../change-feed/change-cursors.ts'
import { type Pause, PROCESSES, type ProcessRow } from '../../run/pause.ts'
import { COUNTED } from '../../run/retention.ts'
import type { Operation } from '../../bulk/bulk-operation.ts'
import { OPERATIONS } from '../../bulk/bulk-operation-store.ts'
import type { StoredRun } from '../../run/transitions.ts'
import type { ScheduleTiming } from '../../schedule/schedule.ts'
import { type ScheduleRow, SCHEDULES } from '../../schedule/schedule-store.ts'
import { type DeadLetterRow, LETTERS } from '../../dead-letter/dead-letter-store.ts'
import { INSTALLATION, keyOf, lastIdIs, type RecordChange, type RecordTables } from './records.ts'
import { filesLeftOf } from './retention.ts'
import { addedWebhook, removedWebhook, type StoredWebhook, storedWebhooks } from './webhooks.ts'

/** A row with the names of members that earlier versions used. */
type Earlier<Row> = { readonly [Name in keyof Row & string as Uncapitalize<Name>]: Row[Name] }
type EarlierSchedule = Omit<Earlier<ScheduleRow>, keyof ScheduleTiming | 'updatedAt'> & {
  readonly timing: ScheduleTiming
}
type EarlierCursor = Earlier<CursorRow>

/** A dead letter, whose content is in Base64. */
type StoredDeadLetter = Omit<DeadLetterRow, 'Content'> & { readonly Content: string }

/** The members of a snapshot, and of an entry of the journal, that are rows now. */
export interface EarlierMembers {
  readonly webhooks?: readonly Omit<StoredWebhook, 'ID'>[]
  /** The id of a webhook whose run has ended. */
  readonly delivered?: string
  readonly runs?: readonly EarlierRun[]
  readonly run?: EarlierRun
  /** All paused processes. In the oldest files, a pause consists only of the name of the process. */
  readonly paused?: readonly (Pause | string)[]
  readonly schedules?: readonly EarlierSchedule[]
  readonly schedule?: EarlierSchedule
  readonly cursors?: readonly EarlierCursor[]
  readonly cursor?: EarlierCursor
  readonly removedCursor?: string
  readonly operations?: readonly Operation[]
  /** Only the first entry of an operation contains its request. */
  readonly operation?: Omit<Operation, 'Request'> & Partial<Pick<Operation, 'Request'>>
  readonly forgottenOperation?: string
  readonly deadLetters?: readonly StoredDeadLetter[]
  readonly lastDeadLetterId?: number
  readonly deadLetter?: StoredDeadLetter
  /** Their ids. */
  readonly removedDeadLetters?: readonly number[]
  /** Epoch ms. */
  readonly deliveredAt?: number | null
  readonly retention?: {
    readonly keepsByDefault: boolean
    readonly counts: Readonly<Record<keyof typeof COUNTED, Readonly<Record<string, number>>>>
  }
}

/** A run of an earlier version, which said itself that its files may remain. */
export type EarlierRun = StoredRun & { readonly filesLeft?: true }

/** Returns the changes that an earlier version meant. */
export function changesOf(earlier: EarlierMembers, records: RecordTables): readonly RecordChange[] {
  const { paused, deliveredAt, removedCursor, retention, operation, forgottenOperation } = earlier
  const operations = [...(earlier.operations ?? []), ...(operation ? [operation] : [])]
  const schedules = [...(earlier.schedules ?? []), ...(earlier.schedule ? [earlier.schedule] : [])]
  const { deadLetters = [], deadLetter, lastDeadLetterId, removedDeadLetters = [] } = earlier
  const letters = [...deadLetters, ...(deadLetter ? [deadLetter] : [])]
  const cursors = [...(earlier.cursors ?? []), ...(earlier.cursor ? [earlier.cursor] : [])]
  const runs = [...(earlier.runs ?? []), ...(earlier.run ? [earlier.run] : [])]
  const { webhooks = [], delivered } = earlier
  const lastWebhook = webhooks.length === 0 ? undefined : storedWebhooks({ records }).at(-1)
  return [
    ...webhooks.map((webhook, n) =>
      addedWebhook({ ...webhook, ID: (lastWebhook?.ID ?? 0) + n + 1 }),
    ),
    ...(delivered === undefined ? [] : [removedWebhook(delivered)]),
    ...runs.flatMap(({ header, filesLeft }) => (filesLeft === true ? [filesLeftOf(header)] : [])),
    ...(paused === undefined ? [] : pauseChanges(paused, records)),
    ...schedules.map(scheduleChange),
    ...cursors.map(cursorChange),
    ...(removedCursor === undefined
      ? []
      : [{ table: CURSORS.table, key: keyOf([removedCursor]), row: null }]),
    ...operations.map(operationChange),
    ...(forgottenOperation === undefined
      ? []
      : [{ table: OPERATIONS.table, key: keyOf([forgottenOperation]), row: null }]),
    ...(deliveredAt === undefined || deliveredAt === null
      ? []
      : [installed(DELIVERY.prefix ?? '', new Date(deliveredAt).toISOString())]),
    ...(retention === undefined ? [] : retentionChanges(retention)),
    ...letters.flatMap((letter) => [letterChange(letter), ...lastIdIs(LETTERS.table, letter.ID)]),
    ...(lastDeadLetterId === undefined ? [] : lastIdIs(LETTERS.table, lastDeadLetterId)),
    ...removedDeadLetters.flatMap((id) =>
      ([...records.values(LETTERS.table)] as StoredDeadLetter[])
        .filter(({ ID }) => ID === id)
        .map((letter) => letterChange(letter, null)),
    ),
  ]
}

const letterChange = (letter: StoredDeadLetter, row: object | null = letter): RecordChange => ({
  table: LETTERS.table,
  key: keyOf([letter.Process, letter.MessageID]),
  row,
})

const installed = (Name: string, Value: unknown): RecordChange => ({
  table: INSTALLATION,
  key: keyOf([Name]),
  row: { Name, Value },
})

function retentionChanges({
  keepsByDefault,
  counts,
}: NonNullable<EarlierMembers['retention']>): RecordChange[] {
  const counted = Object.entries(COUNTED).flatMap(([action, prefix]) =>
    Object.entries(counts[action as keyof typeof COUNTED]).map(([process, count]) =>
      installed(prefix + process, count),
    ),
  )
  return [installed('KeepsByDefault', keepsByDefault), ...counted]
}

/** The processes that are not in the list were resumed. */
function pauseChanges(
  paused: NonNullable<EarlierMembers['paused']>,
  records: RecordTables,
): RecordChange[] {
  const rows = new Map<string, object>(
    records.rows(PROCESSES.table).map(([key, row]) => [key, { ...row, Paused: false }]),
  )
  for (const pause of paused) {
    const known =
      typeof pause === 'string'
        ? { Process: pause, PausedAt: null, PausedBy: null, Reason: null }
        : pause
    const row: ProcessRow = {
      ...known,
      Paused: true,
      UpdatedAt: known.PausedAt ?? new Date(0).toISOString(),
    }
    rows.set(keyOf([row.Process]), row)
  }
  return [...rows].map(([key, row]) => ({ table: PROCESSES.table, key, row }))
}

const operationChange = (operation: NonNullable<EarlierMembers['operation']>): RecordChange => ({
  table: OPERATIONS.table,
  key: keyOf([operation.ID]),
  row: { LeaseOwner: null, LeaseUntil: null, ...operation },
  isPartial: true,
})

const cursorChange = (cursor: EarlierCursor): RecordChange => ({
  table: CURSORS.table,
  key: keyOf([cursor.realm]),
  row: rowOf(cursor),
})

const scheduleChange = ({ timing, ...known }: EarlierSchedule): RecordChange => ({
  table: SCHEDULES.table,
  key: keyOf([known.process, known.name]),
  row: rowOf({ ...known, ...timing, updatedAt: known.nextAt }),
})

const rowOf = (earlier: object): object =>
  Object.fromEntries(
    Object.entries(earlier).map(([name, value]) => [
      name.slice(0, 1).toUpperCase() + name.slice(1),
      value as unknown,
    ]),
  )
