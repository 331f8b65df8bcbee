import { describe, expect, it } from 'vitest'
import { acceptsOnlyJson, inPlaceOfJson, textOf } from './response-content.ts'

const bytes = (text: string, encoding: BufferEncoding = 'utf8') => Buffer.from(text, encoding)

describe('the text of a body', () => {
  it.each<[string, Buffer, string | null, string | null]>([
    ['UTF-8', bytes('ä'), null, 'ä'],
    ['a charset', bytes('ä', 'latin1'), 'text/plain; charset=ISO-8859-1', 'ä'],
    ['UTF-16 with a byte order mark', bytes('\ufeffä', 'utf16le'), 'text/plain', 'ä'],
    ['an unknown charset', bytes('ä'), 'text/plain; charset=none', 'ä'],
    ['no body', bytes(''), 'application/pdf', ''],
    ['SVG', bytes('<svg/>'), 'image/svg+xml', '<svg/>'],
    ['text without a type of its own', bytes('{}'), 'application/octet-stream', '{}'],
    ['bytes that are no UTF-8', Buffer.from([0x25, 0xe2, 0xe3]), null, null],
    ['bytes that are not in their charset', Buffer.from([0xff]), 'text/plain; charset=utf-8', null],
    ['a PDF of ASCII alone', bytes('%PDF-1.4'), 'application/pdf', null],
    ['JSON with a byte of another charset', bytes('{"a":"ä"}', 'latin1'), null, '{"a":"\ufffd"}'],
    ['bytes of zero', Buffer.from([0x61, 0x00, 0x62]), 'application/octet-stream', null],
    ['UTF-16 that names no charset', bytes('ab', 'utf16le'), 'application/json', null],
    ['an image', bytes('GIF89a'), 'image/gif', null],
  ])('is that of its charset, and null for a body that is not text: %s', (_, body, type, text) => {
    expect(textOf(body, type)).toBe(text)
  })
})

describe('a body in place of JSON', () => {
  it.each<[string, string | null, string | null]>([
    ['<!doctype html><title>Back soon</title>', 'text/html', 'HTML'],
    ['\n <HTML lang="en">\n<Head>', 'application/json', 'HTML'],
    ['<html>', null, 'text without a Content-Type'],
    ['<?xml version="1.0"?>\n<!DOCTYPE html>', null, 'HTML'],
    ['Back soon', 'text/html; charset=utf-8', 'HTML'],
    ['Invalid Company Status', 'text/plain', 'plain text'],
    ['Invalid Company Status', null, 'text without a Content-Type'],
    ['Back soon', ' ', 'text without a Content-Type'],
    ['{"a":', null, 'text without a Content-Type'],
    ['{"a":1}', 'text/html', null],
    ['{"a":1}', null, null],
    ['', 'text/html', null],
    [' \n', 'text/plain', null],
    ['\u00A0', 'application/json', 'plain text'],
    ['<Fault/>', 'application/xml', null],
    ['<Fault/>', null, 'text without a Content-Type'],
    ['', null, null],
    ['a,b', 'text/csv', null],
    ['{"a":', 'application/json', null],
    ['Back soon', 'application/json; charset=utf-8', 'plain text'],
    ['<h1>Back soon</h1>', 'application/problem+json', 'HTML'],
    ['true', 'application/json', null],
    ['1\n2\n', 'application/x-ndjson', null],
  ])('%j with the type %j is %j', (body, type, found) => {
    expect(inPlaceOfJson(body, type)).toBe(found)
  })

  it.each<[string | undefined, boolean]>([
    ['application/json', true],
    ['application/problem+json, application/json;q=0.9', true],
    ['application/json, text/plain, */*', false],
    ['text/csv', false],
    ['*/*', false],
    [undefined, false],
  ])('the Accept header %j accepts only JSON: %j', (accept, isOnly) => {
    expect(acceptsOnlyJson(accept)).toBe(isOnly)
  })
})
