import { describe, expect, it } from 'vitest'
import { csvFileName, csvOf } from './order-process.ts'

describe('the CSV file of an order', () => {
  it('a CSV cell that a spreadsheet would run as a formula is escaped', () => {
    for (const start of ['=', '+', '-', '@', '\t', '\r'])
      expect(csvOf({ Order: `${start}cmd()` })).toMatch(/^Order\n"?'/)
    expect(csvOf({ Order: 'O-66' })).toBe('Order\nO-66\n')
  })

  it('a CSV value that contains line breaks is quoted', () => {
    expect(csvOf({ A: 'x,"y"\nz' })).toBe('A\n"x,""y""\nz"\n')
  })

  it.each([
    ['66', 'Order_66.0.csv'],
    ['../../etc/x', 'Order_..%2F..%2Fetc%2Fx.0.csv'],
    ['a\\b:c', 'Order_a%5Cb%3Ac.0.csv'],
    ['=cmd()', 'Order_%3Dcmd%28%29.0.csv'],
    ['é%', 'Order_%C3%A9%25.0.csv'],
    ['..', 'Order_...0.csv'],
  ])('the file of the transaction %j has the name %s', (transactionId, name) => {
    expect(csvFileName({ transactionId, replayId: 0 })).toBe(name)
  })

  it('two transaction ids of the maximum length with different last characters get different file names of at most 255 bytes', () => {
    const long = (end: string) => csvFileName({ transactionId: '😀'.repeat(63) + end, replayId: 0 })
    expect(long('a').length).toBeLessThan(240)
    expect(long('a')).not.toBe(long('b'))
  })
})
