import type { CredentialView } from '@integration-host/shared/contracts/credential'
import { describe, expect, it } from 'vitest'
import {
  AT,
  company,
  processState,
  runGroup,
  unknownInstallation as calm,
} from '../../test-support/installation.ts'
import { listed } from './condition.ts'
import { conditionsOf } from './conditions.ts'
import { withFiringAlerts } from './firing-alerts.ts'
import type { Installation, RunGroup } from './installation.ts'

const group = runGroup({ step: 'report', errorClass: 'http_503', endedAt: 1_000 })
const withGroups = (...groups: readonly RunGroup[]): Installation => ({
  ...calm,
  processes: [processState('OrderProcess', groups)],
})
const names = (installation: Installation): string[] =>
  conditionsOf(installation).map(({ name }) => name)

describe('the conditions of the page Now', () => {
  it('the console reports no condition before it knows the state of the installation', () => {
    expect(conditionsOf(calm)).toEqual([])
  })

  it('a run that has lost two workers in a row is named with its process and step', () => {
    const lost = { ...group, status: 'Retrying', errorClass: 'worker_lost', count: 1, inDoubt: 0 }
    expect(conditionsOf(withGroups(lost))).toMatchObject([
      {
        name: 'RunsLosingWorkers',
        title: `1 run of ${lost.process} lost two workers in a row at ${lost.step}`,
        page: `/runs?status=Retrying&process=${lost.process}&step=${lost.step}&class=worker_lost&children=true`,
      },
    ])
    expect(conditionsOf(withGroups({ ...lost, status: 'Running' }))).toEqual([])
  })

  it('one card counts the runs that wait for a decision, and leads to them', () => {
    const waits = (event: string, count: number) =>
      runGroup({ status: 'Waiting', step: event, waitingFor: `event:${event}`, count })
    const at = withGroups(waits('approved', 2), waits('checked', 1), waits('paid', 5))
    const decisions = ['approved', 'checked']
    const processes = (at.processes ?? []).map((process) => ({ ...process, decisions }))
    expect(conditionsOf({ ...at, processes })).toMatchObject([
      {
        name: 'RunsAwaitDecision',
        severity: 'info',
        title: '3 runs wait for a decision',
        detail: 'OrderProcess.approved and OrderProcess.checked',
        affected: 3,
        page: '/runs?status=Waiting&waitingFor=event%3Aapproved&waitingFor=event%3Achecked&process=OrderProcess&children=true',
      },
    ])
  })

  it('the condition about failed runs says with which codes and messages the provider has rejected them', () => {
    const rejected = runGroup({ errorClass: 'http_400', providerError: '6240 Duplicate Name' })
    expect(conditionsOf(withGroups({ ...rejected, count: 2 }))).toMatchObject([
      {
        title: '2 runs failed at OrderProcess.order: 6240 Duplicate Name',
        detail: 'the provider rejected it (http_400)',
        remedy: expect.stringContaining('has this name'),
      },
    ])
    const other = { ...rejected, providerError: '6140 Duplicate Number', count: 5 }
    expect(conditionsOf(withGroups({ ...rejected, count: 2 }, other))).toMatchObject([
      {
        title: '7 runs failed at OrderProcess.order',
        detail: '5 × 6140 Duplicate Number and 2 × 6240 Duplicate Name',
        affected: 7,
      },
    ])
  })

  it('runs that the provider has rejected for the same reason cause one condition, at whatever processes and steps', () => {
    const at = (step: string, change: Partial<RunGroup> = {}) =>
      runGroup({ step, errorClass: 'http_400', providerError: '6240 Duplicate Name', ...change })
    const other = at('bill', { providerError: '6140 Duplicate Number' })
    expect(
      conditionsOf(withGroups(at('order'), at('customer', { count: 2 }), other)),
    ).toMatchObject([
      {
        title: '5 runs failed: 6240 Duplicate Name',
        detail:
          'the provider rejected it (http_400) · OrderProcess.order and OrderProcess.customer',
        affected: 5,
        page: '/runs?status=Failed&class=6240&children=true',
      },
      { title: '3 runs failed at OrderProcess.bill: 6140 Duplicate Number' },
    ])
  })

  it('the condition of failed runs says in words what happened, next to the error class', () => {
    expect(conditionsOf(withGroups({ ...group, errorClass: 'children_failed' }))).toMatchObject([
      { detail: 'too many of its children have not been completed (children_failed)' },
    ])
  })

  it('a condition names companies by their labels, and counts the companies that it does not name', () => {
    const faulted = [
      company('ACC-1', 'must_reconnect', 'Rosewood Interiors'),
      company('ACC-2', 'must_reconnect'),
      company('ACC-3', 'failing'),
    ]
    const companies = { Total: 20, States: { must_reconnect: 12, failing: 1 }, Classes: {} }
    const [first, second] = conditionsOf({
      ...calm,
      companies: companies as Installation['companies'],
      faulted,
    })
    expect(first).toMatchObject({
      title: '12 companies must be reconnected',
      detail: 'Rosewood Interiors, 2 and 10 more · invalid_grant',
      affected: 12,
      knownSince: Date.parse(AT),
    })
    expect(second).toMatchObject({
      title: '1 company cannot be refreshed now',
      severity: 'warning',
    })
  })

  it('the condition of a company whose refresh token was rejected for the first time offers to reconnect the company', () => {
    const failing = company('ACC-3', 'failing')
    const rejected = { ...failing.Fault, Remedy: 'Reconnect it.', Final: false }
    const faulted = [{ ...failing, Fault: rejected } as CredentialView]
    expect(conditionsOf({ ...calm, faulted })).toMatchObject([
      {
        detail: '3 · invalid_grant',
        remedy: 'Reconnect it.',
        page: '/companies/3',
        action: { Kind: 'connect_company', Realm: '3' },
      },
    ])
    expect(conditionsOf({ ...calm, faulted: [failing] })).toMatchObject([
      { page: '/companies?state=failing' },
    ])
  })

  it('if a service does not respond, conditions based on its last values have the time of these values', () => {
    const paused = { ...withGroups(group), asOf: { companies: null, processes: 5_000 } }
    expect(conditionsOf(paused)).toMatchObject([{ name: 'RunsFailed', asOf: 5_000 }])
    expect(conditionsOf(withGroups(group))).toMatchObject([{ name: 'RunsFailed', asOf: null }])
  })

  it('a company with the fault used_elsewhere causes a condition that names both possible causes', () => {
    const known = company('ACC-1', 'must_reconnect', 'Rosewood')
    const Fault = { Code: 'used_elsewhere', Message: '', At: '2026-11-23T10:00:00Z', Attempts: 1 }
    expect(conditionsOf({ ...calm, faulted: [{ ...known, Fault }] })[0]?.detail).toBe(
      'Rosewood · disconnected by its owner, or used by another program',
    )
  })

  it('failed runs of the same step and error class cause one condition, and cancelled runs cause none', () => {
    const conditions = conditionsOf(
      withGroups(group, { ...group, count: 2, endedAt: 500 }, { ...group, status: 'Cancelled' }),
    )
    expect(conditions).toMatchObject([
      { title: '5 runs failed at OrderProcess.report', detail: 'http_503', knownSince: 500 },
    ])
  })

  it.each([
    ['http_503', /Fix the target/],
    ['http_404', /The same data is rejected again/],
    ['step_unknown', /Deploy the process/],
    ['realm_missing', /Queue a copy with its company/],
    ['input_invalid', /Queue a copy with corrected data/],
    ['change_feed_rejected', /next sweep/],
    ['step_threw', /Fix the code/],
    [null, /Look at the error/],
  ])('failed runs of the class %s get their remedy', (errorClass, remedy) => {
    expect(conditionsOf(withGroups({ ...group, errorClass }))[0]?.remedy).toMatch(remedy)
  })

  it('the action of failed runs says whether their data was rejected', () => {
    const rejected = (errorClass: string) =>
      conditionsOf(withGroups({ ...group, errorClass }))[0]?.action
    expect(rejected('http_422')).toMatchObject({ Kind: 'resume_runs', DataRejected: true })
    expect(rejected('http_503')).toMatchObject({ Kind: 'resume_runs', DataRejected: false })
  })

  it('runs that wait for a slot of their process or for an event cause no condition, but runs that wait for a company do', () => {
    const waiting = { ...group, status: 'Waiting', errorClass: null }
    for (const waitingFor of ['concurrency', 'event:approved'])
      expect(names(withGroups({ ...waiting, waitingFor }))).toEqual([])
    expect(
      conditionsOf(
        withGroups({ ...waiting, waitingFor: 'ACC-1' }, { ...waiting, waitingFor: 'ACC-2' }),
      ),
    ).toMatchObject([{ name: 'RunsWaiting', title: '6 runs wait for 2 companies' }])
  })

  it('runs that closed books keep waiting are one condition with the companies', () => {
    const waiting = { ...group, status: 'Waiting', errorClass: 'books_closed' }
    const [one] = conditionsOf(withGroups({ ...waiting, waitingFor: 'books:1' }))
    expect(one).toMatchObject({
      name: 'RunsBooksClosed',
      title: '3 runs wait because the books of 1 company are closed',
      detail: '1',
      affected: 3,
    })
  })

  it.each([
    ['books:1', 'RunsBooksClosed'],
    ['ACC-1', 'RunsWaiting'],
  ])('the condition of runs that wait for %s has the name of the company', (waitingFor, name) => {
    const waiting = withGroups({ ...group, status: 'Waiting', errorClass: null, waitingFor })
    expect(conditionsOf({ ...waiting, companyNames: { 1: 'Rosewood' } })).toMatchObject([
      { name, detail: 'Rosewood' },
    ])
  })

  it('the condition of a faulted company counts the runs that wait for it, and the runs cause no second card', () => {
    const waiting = { ...group, status: 'Waiting', errorClass: null, waitingFor: 'ACC-1' }
    const faulted = [company('ACC-1', 'must_reconnect', 'Rosewood')]
    const both = conditionsOf({ ...withGroups(waiting), faulted })
    expect(both).toMatchObject([
      { name: 'CredentialsFaulted', detail: 'Rosewood · invalid_grant · 3 runs wait' },
      { name: 'RunsWaiting', isConsequence: true },
    ])
    const alert = { labels: { alertname: 'RunsWaiting' }, summary: '', activeAt: 0 }
    expect(withFiringAlerts(both, [alert]).map(({ name }) => name)).toEqual(['CredentialsFaulted'])
  })

  it('one failed run is a note, and several failed runs are a warning', () => {
    const severity = (count: number) => conditionsOf(withGroups({ ...group, count }))[0]?.severity
    expect([severity(1), severity(2)]).toEqual(['info', 'warning'])
  })

  it('a paused process is a note until runs of it wait', () => {
    const paused = (...groups: readonly RunGroup[]) =>
      conditionsOf({
        ...calm,
        processes: [
          { ...processState('P', groups), isPaused: true, pausedBy: 'ada', reason: 'audit' },
        ],
      })
    expect(paused()).toMatchObject([{ severity: 'info', detail: 'by ada: “audit”' }])
    const queued = { ...group, process: 'P', status: 'Queued', errorClass: null, endedAt: null }
    expect(paused(queued)).toMatchObject([
      { severity: 'warning', detail: 'by ada: “audit” · 3 runs do not continue' },
    ])
  })

  it('a paused company is a note until runs of it wait, and its waiting runs wait for no credential', () => {
    const pause = {
      Realm: '42',
      Paused: true,
      PausedAt: '2026-11-23T08:00:00.000Z',
      PausedBy: 'ada',
      Reason: 'month end',
    }
    const paused = (...groups: readonly RunGroup[]) =>
      conditionsOf({ ...calm, processes: [processState('P', groups)], paused: [pause] })
    expect(paused()).toMatchObject([
      {
        name: 'CompanyPaused',
        severity: 'info',
        title: 'The runs of company 42 are paused',
        detail: 'by ada: “month end”',
        page: '/companies/42',
        action: { Kind: 'resume_company', Realm: '42' },
      },
    ])
    const named = { ...calm, paused: [pause], companyNames: { 42: 'Rosewood Interiors' } }
    expect(conditionsOf(named)).toMatchObject([
      {
        title: 'The runs of Rosewood Interiors are paused',
        action: { Kind: 'resume_company', Realm: '42', CompanyName: 'Rosewood Interiors' },
      },
    ])
    const waiting = { status: 'Waiting', errorClass: null, endedAt: null, waitingFor: 'paused:42' }
    expect(paused({ ...group, process: 'P', ...waiting })).toMatchObject([
      { severity: 'warning', detail: 'by ada: “month end” · 3 runs wait', affected: 3 },
    ])
  })

  it.each([
    [1, 'Its last call got no response'],
    [2, 'Their last calls got no response'],
  ])('the condition of %i runs in doubt is in the right number', (inDoubt, detail) => {
    const found = conditionsOf(withGroups({ ...group, inDoubt })).find(
      ({ name }) => name === 'RunsInDoubt',
    )
    expect(found?.detail).toContain(detail)
  })

  it.each([
    [1, '1 grant ends soon', 'the owner of the company'],
    [2, '2 grants end soon', 'the owners of the companies'],
  ])('the conditions of %i companies are in the right number', (count, title, toAuthorize) => {
    const States = { active: 0, expiring: count, failing: 0, must_reconnect: count }
    const companies = { Total: 2 * count, States, Classes: {} }
    const found = conditionsOf({ ...calm, companies })
    expect(found.find(({ name }) => name === 'GrantsExpiring')?.title).toBe(title)
    const lost = found.find(({ name }) => name === 'CredentialsFaulted')
    expect(lost?.remedy).toContain(toAuthorize)
  })

  it('conditions are sorted by severity, and then by the number of affected objects', () => {
    const installation = {
      ...withGroups({ ...group, count: 1 }, { ...group, step: 'csv', count: 9, inDoubt: 1 }),
      faulted: [company('ACC-1', 'must_reconnect')],
    }
    expect(
      conditionsOf(installation).map(({ affected, severity }) => [severity, affected]),
    ).toEqual([
      ['critical', 1],
      ['warning', 9],
      ['warning', 1],
      ['info', 1],
    ])
  })

  it('a list of names in a condition ends with the number of omitted names', () => {
    expect(listed(['A'])).toBe('A')
    expect(listed(['A', 'B'])).toBe('A and B')
    expect(listed(['A', 'B', 'C', 'D'])).toBe('A, B, C and D')
    expect(listed(['A', 'B', 'C', 'D', 'E'])).toBe('A, B, C and 2 more')
    expect(listed(['A', 'B', 'C'], 4)).toBe('A, B, C and 1 more')
  })
})
