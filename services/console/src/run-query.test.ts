import { RunFilter } from '@integration-host/shared/contracts/run-filter'
import { headerStatuses } from '@integration-host/shared/contracts/transaction'
import { describe, expect, it } from 'vitest'
import { filtersOf, removableFilters, runQuery, STATUSES } from '../app/run-query.ts'

const LONG = 'x'.repeat(201)
/** For each filter, values that the coordinator accepts and values that the coordinator rejects. */
const VALUES: Readonly<Record<string, readonly string[]>> = {
  status: [...headerStatuses, 'failed', '', 'Failed,Waiting'],
  inDoubt: ['true', 'false', 'yes', ''],
  step: ['report', '', LONG, 'a\nb', '\ud800', '<b>'],
  class: ['http_503', '', LONG],
  realm: ['4620816365291', 'a-b_c', 'a b', '', 'x'.repeat(65), 'Ä'],
  children: ['true', 'false', 'yes', ''],
  idPrefix: ['../x', '😀', '', LONG, '\u0007'],
  waitingFor: ['ACC-1', 'concurrency', ''],
  priority: ['high', 'normal', 'High', '1', ''],
  version: ['1.2.3', 'v1+b', '', '-1', 'x'.repeat(33)],
  tag: ['plan:gold', 'plan:', 'plan', ':gold'],
  from: ['2026-11-24T03:00:00Z', '2026-11-24T03:00:00.123+01:00', '2026-11-24', 'yesterday', ''],
  until: ['2026-11-24T03:00:00Z', '2026-02-31T03:00:00Z', '0000-01-01T00:00:00Z'],
  since: ['2026-11-24T03:00:00Z', '2026-11-24T25:00:00Z'],
}

describe('the query of the list of runs', () => {
  it.each(Object.entries(VALUES))(
    'the list of runs treats a value of the filter %s as wrong exactly if the coordinator rejects the value',
    (name, values) => {
      for (const value of values) {
        const text = new URLSearchParams({ [name]: value }).toString()
        // The text of an address is always well-formed: a lone surrogate becomes U+FFFD.
        const sent = new URLSearchParams(text).get(name)
        const isAccepted = RunFilter.safeParse({ [name]: sent }).success
        const { query, wrong } = runQuery(text)
        expect(
          { value, wrong: wrong.length, kept: query.getAll(name) },
          `${name}=${value}`,
        ).toMatchObject({ wrong: isAccepted ? 0 : 1, kept: isAccepted ? [sent] : [] })
      }
    },
  )

  it('the list of runs knows every filter and every status of the coordinator', () => {
    expect(Object.keys(VALUES).toSorted()).toEqual(Object.keys(RunFilter.shape).toSorted())
    expect([...STATUSES].toSorted()).toEqual([...headerStatuses].toSorted())
  })

  it('the list of runs ignores unknown parameters, and does not send a second value of a parameter that may occur only once', () => {
    const { query, wrong } = runQuery('?utm=1&constructor=2&order=updated&order=created&process=A')
    expect([query.toString(), wrong]).toEqual(['order=updated&process=A', [['order', 'created']]])
    const many = Array.from({ length: 21 }, (_, index) => `step=s${index}`).join('&')
    expect(runQuery(many).wrong).toEqual([['step', 's20']])
  })

  it('the order of the list of runs is not a filter', () => {
    expect(filtersOf(new URLSearchParams('order=updated')).size).toBe(0)
    expect(removableFilters(new URLSearchParams('order=updated'))).toEqual([])
  })

  it('the removable filters of the list of runs are listed from last to first, and all statuses count as one filter', () => {
    const query = new URLSearchParams('status=Failed&status=Waiting&class=http_503&class=network')
    expect(
      removableFilters(query).map(({ name, value, rest }) => [name, value, rest.toString()]),
    ).toEqual([
      ['class', 'network', 'status=Failed&status=Waiting&class=http_503'],
      ['class', 'http_503', 'status=Failed&status=Waiting&class=network'],
      ['status', 'Failed, Waiting', 'class=http_503&class=network'],
    ])
  })
})
