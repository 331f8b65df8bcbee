import { Writable } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { terminalLog } from './terminal-log.ts'

function written(lines: readonly object[], options = {}): string[] {
  let text = ''
  const out = new Writable({
    write(chunk, _encoding, done) {
      text += String(chunk)
      done()
    },
  })
  const log = terminalLog(out, options)
  for (const line of lines) log.write(`${JSON.stringify(line)}\n`)
  return text.split('\n').filter((line) => line !== '')
}

describe('terminalLog()', () => {
  const at = (fields: object) => ({ time: '2026-11-20T10:00:00.000Z', level: 'info', ...fields })

  it('terminalLog writes time, service, message and data of a log line, and marks lines above level info', () => {
    const [info, warn] = written([
      at({ service: 'coordinator', msg: 'step started', step: 'order', attempt: 1 }),
      at({
        level: 'warn',
        service: 'DemoAPI',
        msg: 'dependency is down',
        reason: 'ECONNREFUSED',
      }),
    ])
    expect(info).toMatch(/^\d\d:\d\d:\d\d   coordinator {8}step started  step=order attempt=1$/)
    expect(warn).toMatch(/^\d\d:\d\d:\d\d ! DemoAPI {12}dependency is down  reason=ECONNREFUSED$/)
  })

  it('terminalLog writes the message and the code of a logged error, but not its stack', () => {
    const err = { type: 'Error', message: 'broken', code: 'EPIPE', stack: 'at secret.ts' }
    expect(written([at({ level: 'error', service: 'x', msg: 'request failed', err })])).toEqual([
      expect.stringMatching(/request failed  error=broken code=EPIPE$/),
    ])
  })

  it('terminalLog omits the log lines of HTTP requests if `omitRequests` is set', () => {
    const lines = [
      at({ service: 'x', msg: 'request completed' }),
      at({ service: 'x', msg: 'other' }),
    ]
    expect(written(lines)).toHaveLength(2)
    expect(written(lines, { omitRequests: true })).toHaveLength(1)
  })
})
