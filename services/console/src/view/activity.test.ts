import { describe, expect, it } from 'vitest'
import {
  activityOfAction,
  activityOfAudit,
  isRoutine,
  type LogPart,
  type LogPosition,
  mergeActivity,
  textOfActivity,
  withCompanyName,
} from './activity.ts'

const action = {
  ID: 7,
  At: '2026-11-23T10:00:02.000Z',
  KeyID: 'console',
  Person: 'ada@example.com',
  Action: 'cancel',
  Process: 'a/b',
  TransactionID: '../x',
  ReplayID: 1,
  Realm: '42',
  Reason: 'duplicate',
  Outcome: 'done',
  OperationID: null,
}
const audited = {
  Seq: 9,
  At: '2026-11-23T10:00:01.000Z',
  Who: 'key console for ben',
  What: 'refreshed',
  Name: 'ACC-42',
  Version: 3,
  Outcome: 'ok',
  Previous: '0'.repeat(64),
  Hash: '1'.repeat(64),
} as const

describe('the entries of the page Activity', () => {
  it('the entry of an action names the person, the key, the action, and the page of its run', () => {
    expect(activityOfAction(action)).toMatchObject({
      Kind: 'runs',
      Who: 'ada@example.com',
      Via: 'key console',
      What: 'cancelled',
      Target: 'a/b/../x, run 1',
      Page: '/runs/a%2Fb/..%2Fx?run=1',
      Outcome: null,
    })
  })

  it('the entry of a rejected action is shown as an attempt, with the code of the rejection', () => {
    expect(activityOfAction({ ...action, Outcome: 'transaction_not_active' })).toMatchObject({
      What: 'tried to cancel',
      Outcome: 'transaction_not_active',
      Rejected: true,
    })
  })

  it('the entry of an audited event names the person for whom the console acted, and the page of the company', () => {
    expect(activityOfAudit(audited)).toMatchObject({
      Kind: 'companies',
      Who: 'ben',
      Via: 'key console',
      What: 'refreshed',
      Page: '/companies/42',
      Realm: '42',
      Reason: null,
    })
  })

  it('the entry of an audited event has the reason that the person has given', () => {
    const entry = activityOfAudit({ ...audited, What: 'removed', Reason: 'the customer has left' })
    expect(entry).toMatchObject({ What: 'disconnected', Reason: 'the customer has left' })
  })

  it.each([
    ['granted', 'realm_mismatch', 'chose another company at the provider instead of ACC-42'],
    ['granted', 'code_exchange_failed', 'could not connect ACC-42'],
    ['adopted', 'invalid_grant', 'could not adopt ACC-42'],
  ] as const)(
    'the entry of the audited event %s with the outcome %s says “%s”, and counts as rejected',
    (What, Outcome, text) => {
      const entry = activityOfAudit({ ...audited, What, Outcome })
      if (entry === null) throw new Error('the entry is missing')
      expect(entry).toMatchObject({ Outcome, Rejected: true })
      expect(textOfActivity(entry)).toBe(`${text} (${Outcome})`)
      expect(activityOfAudit({ ...audited, What })).toMatchObject({ Rejected: false })
    },
  )

  it('the entry of a failed connection that names no company says so', () => {
    const failed = { ...audited, What: 'granted', Name: '', Outcome: 'code_exchange_failed' }
    expect(activityOfAudit({ ...failed, What: 'granted' })).toMatchObject({ Target: 'a company' })
  })

  it('a refresh by token-service itself is routine, a refresh for a person is not, and a token issuance has no entry', () => {
    expect([{ ...audited, Who: 'routine' }, audited].map(isRoutine)).toEqual([true, false])
    expect(activityOfAudit({ ...audited, What: 'handed_out' })).toBeNull()
  })

  it('the entry of a company has the name of the company beside its credential, if the company has a name', () => {
    const entry = activityOfAudit(audited)
    if (entry === null) throw new Error('the entry is missing')
    const named = withCompanyName(entry, { 42: 'Rosewood' })
    expect(named).toMatchObject({ Target: 'ACC-42', Company: 'Rosewood' })
    expect(textOfActivity(named)).toBe('refreshed Rosewood')
    expect(withCompanyName(entry, { 43: 'Northwind' })).toBe(entry)
    const odd = activityOfAudit({ ...audited, Name: 'ACC-constructor' })
    if (odd === null) throw new Error('the entry is missing')
    expect(withCompanyName(odd, {})).toBe(odd)
    expect(textOfActivity(entry)).toBe('refreshed ACC-42')
  })

  it.each([
    ['requeue_dead_letter', '66', '/runs/P/66?run=2'],
    ['delete_dead_letter', null, '/dead-letters/P'],
    ['start_operation', null, '/bulk/op-1'],
    ['run_schedule', 'nightly@2026-11-26T02:00:00.123Z', '/processes/P#schedule-nightly'],
    ['pause_schedule', 'nightly@', '/processes/P#schedule-nightly'],
    ['pause', null, '/processes/P'],
  ])('the entry of the action %s about %s leads to %s', (Action, TransactionID, Page) => {
    const ReplayID = TransactionID === '66' ? 2 : null
    const about = { Process: 'P', TransactionID, ReplayID, OperationID: 'op-1' }
    expect(activityOfAction({ ...action, Action, ...about }).Page).toBe(Page)
  })

  it('the entry of the pause of a company names the company and leads to its page', () => {
    const about = { Action: 'pause', Process: '*', TransactionID: null, Realm: '42' }
    const entry = activityOfAction({ ...action, ...about, ReplayID: null })
    expect(textOfActivity(entry)).toBe('paused company 42')
    expect(entry.Page).toBe('/companies/42')
    expect(textOfActivity(withCompanyName(entry, { 42: 'Rosewood' }))).toBe('paused Rosewood')
  })

  it('the entry of an action on a schedule names the process and the schedule', () => {
    const about = { Action: 'pause_schedule', Process: 'P', TransactionID: 'nightly@' }
    const entry = activityOfAction({ ...action, ...about, ReplayID: null })
    expect(textOfActivity(entry)).toBe('paused the schedule P/nightly')
  })

  it('the link of any company has an entry that says so', () => {
    const entry = activityOfAudit({ ...audited, What: 'link_created', Name: '' })
    expect(entry).toMatchObject({ What: 'made a connect link for', Target: 'any company' })
  })
})

describe('the merging of the logs for the page Activity', () => {
  /**
   * Returns a log with an entry for each of these minutes. A negative number stands for an entry that the page Activity
   * leaves out.
   */
  function logOf(name: string, minutes: readonly number[]) {
    const entries = minutes.map((minute, index) => ({
      position: minutes.length - index,
      entry:
        minute < 0
          ? null
          : {
              ...activityOfAction(action),
              Key: `${name} ${minute}`,
              At: `2026-11-23T10:${String(minute).padStart(2, '0')}:00.000Z`,
            },
    }))
    return (before: LogPosition, limit: number): LogPart => {
      const older = entries.filter(
        ({ position }) => before === null || (before !== 'end' && position < before),
      )
      return { items: older.slice(0, limit), hasMore: older.length > limit }
    }
  }

  it.each([1, 2, 3, 10])(
    'the pages of the merged logs contain every entry once, newest first, if %i entries are read at a time',
    (limit) => {
      const logs = [
        logOf('a', [59, 30, 29, -1, -1, 5]),
        logOf('b', [50, 49, 48, 1]),
        logOf('c', []),
      ]
      let next: readonly LogPosition[] = [null, null, null]
      const keys: string[] = []
      for (let page = 0; page < 40 && next.some((position) => position !== 'end'); page += 1) {
        const parts = logs.map((log, index) => log(next[index] ?? null, limit))
        const merged = mergeActivity(parts, next, {}, 2)
        keys.push(...merged.entries.map(({ Key }) => Key))
        next = merged.next
      }
      expect(keys).toEqual(['a 59', 'b 50', 'b 49', 'b 48', 'a 30', 'a 29', 'a 5', 'b 1'])
      expect(next).toEqual(['end', 'end', 'end'])
    },
  )

  it('the activity can be filtered by person regardless of case, by kind and by company', () => {
    const part = { items: [{ position: 1, entry: activityOfAction(action) }], hasMore: false }
    const count = (query: Parameters<typeof mergeActivity>[2]) =>
      mergeActivity([part], [null], query, 5).entries.length
    expect(
      [{ person: 'ADA' }, { kind: 'runs' }, { realm: '42' }].map((q) => count(q as never)),
    ).toEqual([1, 1, 1])
    expect(
      [{ person: 'ben' }, { kind: 'companies' }, { realm: '43' }].map((q) => count(q as never)),
    ).toEqual([0, 0, 0])
  })
})
