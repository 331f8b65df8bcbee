import { expect, it } from 'vitest'
import { invoicePdf } from './pdf.ts'

const textOf = (invoice: Readonly<Record<string, unknown>>): string =>
  Buffer.from(invoicePdf(invoice)).toString('latin1')

it('the cross-reference table of the PDF contains the byte position of each object', () => {
  const pdf = textOf({ DocNumber: '1', Line: [{ Description: 'Tür', Amount: 66 }] })
  const positions = [...pdf.matchAll(/^(\d{10}) 00000 n $/gm)].map(([, position]) =>
    Number(position),
  )
  expect(positions).toHaveLength(5)
  for (const [index, position] of positions.entries())
    expect(pdf.slice(position)).toMatch(new RegExp(`^${index + 1} 0 obj\n`))
  const table = Number(/startxref\n(\d+)\n/.exec(pdf)?.[1])
  expect(pdf.slice(table)).toMatch(/^xref\n/)
  const [, length, stream] = /\/Length (\d+) >>\nstream\n([^]*)\nendstream/.exec(pdf) ?? []
  expect(stream).toHaveLength(Number(length))
})

it('parentheses and backslashes of an invoice are escaped in the PDF', () => {
  expect(textOf({ DocNumber: String.raw`\) Tj ET (` })).toContain(
    String.raw`(Invoice \\\) Tj ET \() Tj`,
  )
  expect(textOf({ DocNumber: 'a\nb\u{1F600}€' })).toContain('(Invoice a?b???) Tj')
})

it('the PDF of an invoice has at most 40 lines, and shows the number of omitted lines', () => {
  const Line = Array.from({ length: 100 }, () => ({ Description: 'Tea', Amount: 1 }))
  const pdf = textOf({ Line })
  expect(pdf.match(/ Tj T\*/g)).toHaveLength(41)
  expect(pdf).toContain('(and 66 more lines)')
})

it.each([
  {},
  { Line: 'none', CustomerRef: 7 },
  { Line: [null, 1, []], TotalAmt: {}, DocNumber: [] },
])('an invoice with the members %j can be shown as a PDF', (invoice) => {
  expect(textOf(invoice)).toContain('%%EOF')
})
