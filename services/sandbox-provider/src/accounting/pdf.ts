/** Creates the PDF of an invoice: one page with the customer, the dates, the lines and the amounts. */
import { asObject } from '@integration-host/shared/json'
import type { Body } from './posted-entities.ts'

/** The maximum number of lines on the page. The PDF shows the number of omitted lines. */
const MAX_LINES = 40
const MAX_CHARACTERS = 90

/** Returns the bytes of a PDF document (ISO 32000-1) that shows the invoice on one page. */
export function invoicePdf(invoice: Body): Uint8Array<ArrayBuffer> {
  const lines = linesOf(invoice)
  const shown = lines.slice(0, MAX_LINES)
  if (shown.length < lines.length) shown.push(`and ${lines.length - shown.length} more lines`)
  const text = shown.map((line) => `(${literal(line)}) Tj T*`).join('\n')
  const content = `BT /F1 11 Tf 14 TL 72 770 Td\n${text}\nET`
  return document([
    '<< /Type /Catalog /Pages 2 0 R >>',
    '<< /Type /Pages /Kids [3 0 R] /Count 1 >>',
    '<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>',
    `<< /Length ${content.length} >>\nstream\n${content}\nendstream`,
    '<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>',
  ])
}

function linesOf(invoice: Body): string[] {
  const customer = asObject(invoice['CustomerRef'])
  const lines = (Array.isArray(invoice['Line']) ? invoice['Line'].map(asObject) : []).filter(
    (line) => line?.['DetailType'] !== 'SubTotalLineDetail',
  )
  return [
    `Invoice ${textOf(invoice['DocNumber'] ?? invoice['Id'])}`,
    `Customer: ${textOf(customer?.['name'] ?? customer?.['value'])}`,
    `Date: ${textOf(invoice['TxnDate'])}`,
    `Due: ${textOf(invoice['DueDate'])}`,
    ...lines.map((line) => `${textOf(line?.['Description'])}  ${textOf(line?.['Amount'])}`),
    `Total: ${textOf(invoice['TotalAmt'])}`,
    `Balance: ${textOf(invoice['Balance'])}`,
  ]
}

/**
 * Converts a string or a number to a string. Returns an empty string for any other value, because clients can store any
 * JSON value.
 */
const textOf = (value: unknown): string =>
  typeof value === 'string' || typeof value === 'number' ? String(value) : ''

/**
 * Returns the content of a PDF literal string. Parentheses and backslashes are escaped, so that no text of a client
 * ends the string. Control characters and characters outside Latin-1 become question marks.
 */
const literal = (text: string): string =>
  text
    .slice(0, MAX_CHARACTERS)
    .replaceAll(/[^\x20-\x7e\xa1-\xff]/g, '?')
    .replaceAll(/[\\()]/g, String.raw`\$&`)

/** Writes the objects, the cross-reference table and the trailer. Every character occupies one byte. */
function document(objects: readonly string[]): Uint8Array<ArrayBuffer> {
  let file = '%PDF-1.4\n'
  const positions = objects.map((object, index) => {
    const position = file.length
    file += `${index + 1} 0 obj\n${object}\nendobj\n`
    return `${String(position).padStart(10, '0')} 00000 n \n`
  })
  const table = file.length
  file += `xref\n0 ${objects.length + 1}\n0000000000 65535 f \n${positions.join('')}`
  file += `trailer\n<< /Size ${objects.length + 1} /Root 1 0 R >>\nstartxref\n${table}\n%%EOF\n`
  return Uint8Array.from(file, (character) => character.charCodeAt(0))
}
