import { describe, expect, it } from 'vitest'
import { lineFile, lineResults, resultLines, resultText, summaryOf } from './queue-lines.ts'

describe('the results of a file of transactions', () => {
  it('each non-empty line of a file has a result with its line number, and the failures are listed first', () => {
    const file = lineFile('a\n\n  \r\nb\nc\n', 12)
    expect(file.fault).toBeNull()
    expect(file.lines.map(({ number }) => number)).toEqual([1, 4, 5])
    const results = lineResults(file, {
      Results: [
        { TransactionID: 'a', Outcome: 'queued', Errors: [] },
        { TransactionID: null, Outcome: 'invalid', Errors: ['line: is not JSON'] },
        { TransactionID: 'c', Outcome: 'conflict', Errors: [] },
      ],
    })
    expect(results.map(({ line }) => line)).toEqual([4, 5, 1])
    expect(results.map(resultText)).toEqual([
      'not valid: not JSON, column 1 needs a value',
      'id taken by other data',
      'queued',
    ])
    expect(summaryOf(results)).toBe('1 queued · 1 id taken by other data · 1 not valid')
    expect(resultLines(results.slice(0, 1))).toBe(
      '{"Line":4,"TransactionID":null,"Outcome":"invalid","Errors":["not JSON, column 1 needs a value"]}\n',
    )
  })

  it.each([
    ['', 0, 'The file has no line.'],
    [
      '{}\n'.repeat(10_001),
      30_003,
      'The file has 10001 lines. At most 10000 can be queued at once',
    ],
    ['{}', 8_388_609, 'The file has more than 8 MB.'],
  ])('lineFile() returns the reason if a file cannot be sent', (text, bytes, fault) => {
    expect(lineFile(text, bytes).fault).toContain(fault)
  })
})
