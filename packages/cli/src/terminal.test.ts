import { PassThrough } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { createProgress, createTable, plain, print, rowsOf, type Terminal } from './terminal.ts'

function terminal(isTTY: boolean) {
  const written: string[] = []
  let at = 0
  const stderr = Object.assign(new PassThrough({ encoding: 'utf8' }), { isTTY })
  stderr.on('data', (text: string) => written.push(text))
  const streams = { stdin: new PassThrough(), stdout: new PassThrough(), stderr }
  const { signal } = new AbortController()
  const one: Terminal = { env: {}, ...streams, now: () => at, wallClock: () => 0, signal }
  return { one, stdout: streams.stdout, written, pass: (ms: number) => (at += ms) }
}

describe('the progress line of a command', () => {
  it('a command that runs without a terminal prints a progress line every ten seconds', () => {
    const { one, written, pass } = terminal(false)
    const progress = createProgress(one)
    for (let n = 1; n <= 250; n += 1) {
      pass(100)
      progress.update(`${n}`)
    }
    progress.end()
    expect(written).toEqual(['100\n', '200\n'])
  })

  it('a command that runs on a terminal redraws the progress line at most ten times a second', () => {
    const { one, written, pass } = terminal(true)
    const progress = createProgress(one)
    for (let n = 1; n <= 3; n += 1) {
      progress.update(`${n}`)
      pass(50)
    }
    progress.end()
    progress.end()
    expect(written).toEqual(['\r\u001b[K1', '\r\u001b[K3', '\r\u001b[K'])
  })
})

describe('the output of a command', () => {
  it('a command removes line breaks and terminal control characters from response texts that it prints', () => {
    expect(plain('a\tb\r\nc\u001b]0;title\u0007\u009b31m\u202e')).toBe('a b c�]0;title��31m�')
    const table = createTable<{ a: string; b: string }>({ A: 'a', B: ({ b }) => b })
    expect(table([{ a: 'x\ny', b: 'z' }])).toEqual(['A    B', 'x y  z'])
  })

  it('a table that is too wide for the terminal gets narrower columns, except the first column', () => {
    interface Row {
      readonly id: string
      readonly status: string
      readonly error: string
    }
    const table = createTable<Row>({ ID: 'id', STATUS: 'status', ERROR: 'error' }, 30)
    const lines = table([{ id: 'transaction-1', status: 'Failed', error: 'e'.repeat(50) }])
    expect(lines).toEqual(['ID             STATUS  ERROR', 'transaction-1  Failed  eeeeee…'])
    const wide = { id: '2', status: '日本', error: '日本語の長いエラー' }
    expect(table([wide])).toEqual(['2              日本    日本語…'])
  })

  it.each([
    ['', 1],
    ['x'.repeat(10), 1],
    ['x'.repeat(11), 2],
    [`\u001b[31m${'x'.repeat(10)}\u001b[0m`, 1],
    ['\u65e5'.repeat(5), 1],
    [`x${'\u65e5'.repeat(5)}`, 2],
    ['x\u65e5'.repeat(6), 2],
    ['e\u0301'.repeat(10), 1],
  ])('a terminal of ten columns shows the line %j in %i rows', (line, rows) => {
    const { one, stdout } = terminal(true)
    Object.assign(stdout, { isTTY: true, columns: 10 })
    expect(rowsOf(line, one)).toBe(rows)
  })

  it('a command does not exit before a slow reader has read its standard output', async () => {
    const { one, stdout } = terminal(false)
    let isPrinted = false
    const printing = print(one, 'x'.repeat(200_000)).then(() => (isPrinted = true))
    await new Promise((done) => setImmediate(done))
    expect(isPrinted).toBe(false)
    stdout.resume()
    await printing
    expect(isPrinted).toBe(true)
  })
})
