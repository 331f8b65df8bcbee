/** Byte-level mutations of a valid input. The same sequence of random numbers gives the same bytes. */

import { type Random, randomOf } from '@integration-host/shared/test-support/random'

/** Texts that parsers of HTTP, URLs, JSON or numbers handle in special ways. */
const tokens = [
  '\r\n',
  '\n',
  '\r',
  '\0',
  ' ',
  '\t',
  ':',
  '\r\n\r\n',
  'Content-Length: 5\r\n',
  'Content-Length: 0\r\n',
  'Content-Length: +5\r\n',
  'Content-Length: 5, 5\r\n',
  'Transfer-Encoding: chunked\r\n',
  'Transfer-Encoding: gzip, chunked\r\n',
  'Transfer-Encoding : chunked\r\n',
  'Transfer-Encoding: identity\r\n',
  'Expect: 100-continue\r\n',
  'Connection: close\r\n',
  'Connection: keep-alive, Authorization\r\n',
  'Upgrade: h2c\r\n',
  'Host: other\r\n',
  'Authorization: Bearer other\r\n',
  '0\r\n\r\n',
  '5\r\nhello\r\n',
  'ffffffffffffffff\r\n',
  '1;x=y\r\n',
  'HTTP/1.0',
  'HTTP/2.0',
  'HTTP/1.1 100 Continue\r\n\r\n',
  'GET /v3/company/2/x HTTP/1.1\r\nHost: x\r\n\r\n',
  '..',
  '/../',
  '%2e%2e%2f',
  '%00',
  '%0d%0a',
  '//',
  '\\',
  '?',
  '#',
  '@',
  '&',
  '"',
  '{',
  '}',
  '[',
  'null',
  'true',
  '-1',
  '1e999',
  '9007199254740993',
  '__proto__',
  '\u00e9',
  '\ud83d\ude00',
  '\u2028',
].map((text) => Buffer.from(text))

type Mutation = (input: Buffer, random: Random, others: readonly Buffer[]) => Buffer

const at = (input: Buffer, random: Random): number => Math.floor(random() * (input.length + 1))
const pick = <Item>(items: readonly Item[], random: Random): Item => {
  const item = items[Math.floor(random() * items.length)]
  if (item === undefined) throw new Error('the list of values to choose from is empty')
  return item
}
const insert = (input: Buffer, position: number, added: Buffer): Buffer =>
  Buffer.concat([input.subarray(0, position), added, input.subarray(position)])
/** Returns a random range of at most 64 bytes. */
function range(input: Buffer, random: Random): readonly [number, number] {
  const from = at(input, random)
  return [from, Math.min(input.length, from + 1 + Math.floor(random() * 64))]
}

const mutations: readonly Mutation[] = [
  // Flips one bit.
  (input, random) => {
    const changed = Buffer.from(input)
    const position = Math.min(at(input, random), input.length - 1)
    changed[position] = (changed[position] ?? 0) ^ (1 << Math.floor(random() * 8))
    return changed
  },
  // Sets one byte to any value.
  (input, random) => {
    const changed = Buffer.from(input)
    changed[Math.min(at(input, random), input.length - 1)] = Math.floor(random() * 256)
    return changed
  },
  // Inserts one of the special texts.
  (input, random) => insert(input, at(input, random), pick(tokens, random)),
  // Inserts one of the special texts at the beginning of a line.
  (input, random) => {
    const lines = [...input.toString('latin1').matchAll(/\n/g)].map(({ index }) => index + 1)
    return insert(input, pick([0, ...lines], random), pick(tokens, random))
  },
  // Replaces a range of bytes with one of the special texts.
  (input, random) => {
    const [from, to] = range(input, random)
    return Buffer.concat([input.subarray(0, from), pick(tokens, random), input.subarray(to)])
  },
  // Removes a range of bytes.
  (input, random) => {
    const [from, to] = range(input, random)
    return Buffer.concat([input.subarray(0, from), input.subarray(to)])
  },
  // Repeats a range of bytes, sometimes many times.
  (input, random) => {
    const [from, to] = range(input, random)
    const times = random() < 0.1 ? 2_000 : 1 + Math.floor(random() * 4)
    return insert(input, to, Buffer.concat(Array(times).fill(input.subarray(from, to))))
  },
  // Truncates the input.
  (input, random) => input.subarray(0, at(input, random)),
  // Replaces a number with another number.
  (input, random) => {
    const text = input.toString('latin1')
    const numbers = [...text.matchAll(/\d+/g)]
    if (numbers.length === 0) return input
    const { 0: digits, index } = pick(numbers, random)
    const other = pick(['0', '1', '-1', '00', '65536', '4294967296', '1'.repeat(30)], random)
    return Buffer.from(text.slice(0, index) + other + text.slice(index + digits.length), 'latin1')
  },
  // Replaces the end of the input with the end of another input.
  (input, random, others) => {
    const other = pick(others, random)
    return Buffer.concat([input.subarray(0, at(input, random)), other.subarray(at(other, random))])
  },
]

/** Returns the input for a seed: one of the valid inputs after one to four mutations. */
export function mutated(inputs: readonly Buffer[], seed: number): Buffer {
  const random = randomOf(seed)
  let input = pick(inputs, random)
  for (let left = 1 + Math.floor(random() * 4); left > 0; left -= 1)
    if (input.length > 0) input = pick(mutations, random)(input, random, inputs)
  return input
}
