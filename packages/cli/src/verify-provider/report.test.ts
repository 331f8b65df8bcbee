import { describe, expect, it } from 'vitest'
import { intuit } from '@integration-host/shared/provider-profile/intuit'
import { checks, expectationsOf } from './expectations.ts'
import {
  asDocumented,
  differs,
  failed,
  judged,
  reportDocument,
  reportTable,
  skipped,
  summaryOf,
} from './report.ts'

const expectations = expectationsOf(intuit)
const uncoloured = (_colour: string, text: string): string => text
const step = (name: string) => ({ step: name })

describe('the report of verify-provider', () => {
  const lines = [
    { ...asDocumented('audience', 'an array with one entry'), ...step('id token') },
    { ...differs('nonce', 'repeated'), ...step('id token') },
    { ...failed(null, 'no response within 30 s'), ...step('query') },
    { ...skipped(null, '--no-create'), ...step('create') },
  ]

  it('the verify-provider report has a line for each check, and shows the documented behaviour and its source below a deviation', () => {
    expect(reportTable(lines, expectations, uncoloured)).toEqual([
      'VERDICT        STEP      CHECK     SEEN',
      'as documented  id token  audience  an array with one entry',
      'differs        id token  nonce     repeated',
      '               → expected: is not repeated (docs/intuit.md, ID token)',
      'failed         query     -         no response within 30 s',
      'skipped        create    -         --no-create',
    ])
  })

  it('with --json, each line of the verify-provider report is one JSON document', () => {
    expect(lines.map((line) => reportDocument(line, expectations))[1]).toEqual({
      Step: 'id token',
      Check: 'nonce',
      Verdict: 'differs',
      Seen: 'repeated',
      Expected: 'is not repeated',
      Section: 'ID token',
    })
    expect(reportDocument({ ...failed(null, 'x'), ...step('query') }, expectations)).toMatchObject({
      Check: null,
      Expected: null,
    })
  })

  it('the verify-provider report contains no control characters from a response', () => {
    const line = { ...failed('query', 'a\u001b[2Jb\nc'), ...step('query') }
    expect(reportTable([line], expectations, uncoloured)[1]).toMatch(/a�\[2Jb c$/)
    expect(reportDocument(line, expectations).Seen).toBe('a�[2Jb c')
  })

  it('the summary of the verify-provider report counts the lines of each verdict and omits verdicts without a line', () => {
    expect(summaryOf(lines)).toBe('1 as documented, 1 differ, 1 skipped, 1 failed.')
    expect(summaryOf(lines.slice(0, 1))).toBe('1 as documented.')
  })

  it('the verify-provider report never gives the verdict `failed` to behaviour that the services can handle', () => {
    expect(judged('nonce', true, 'x').verdict).toBe('as documented')
    expect(judged('nonce', false, 'x').verdict).toBe('differs')
  })

  it('every check of verify-provider names a section of docs/intuit.md and has an expectation for each provider profile', () => {
    for (const check of Object.values(checks))
      expect([check.section, check.intuit, check.generic].every((text) => text.length > 0)).toBe(
        true,
      )
  })
})
