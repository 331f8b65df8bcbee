import { expect, it, describe } from 'vitest'
import { runProcess } from '../../test-support/start-process.ts'
import { Writable } from 'node:stream'
import { terminalLog } from './logger.ts'

const LOGGER = new URL('logger.ts', import.meta.url).href
const PROGRAM = `
  const { createLogger } = await import(${JSON.stringify(LOGGER)})
  const logger = createLogger('coordinator', 'info')
  logger.info({ attempt: 1 }, 'step started')
  logger.warn({ err: new Error('no route to host') }, 'step failed')
`
const command = [process.execPath, '--input-type=module', '--eval', PROGRAM]

it('the logger writes JSON lines if standard output is not a terminal', async () => {
  const { stdout } = await runProcess(command.slice(1))
  expect(JSON.parse(stdout.split('\n')[0] ?? '')).toMatchObject({
    level: 'info',
    service: 'coordinator',
    attempt: 1,
    msg: 'step started',
  })
})

it.each([
  ['with colours', { TERM: 'xterm' }, true],
  ['without colours (if NO_COLOR is set)', { TERM: 'xterm', NO_COLOR: '1' }, false],
])('the logger writes readable lines %s to a terminal', async (_how, more, isColoured) => {
  // script(1) runs a command whose standard output is a pseudo-terminal.
  const quoted = command.map((part) => `'${part.replaceAll("'", String.raw`'\''`)}'`).join(' ')
  const { stdout } = await runProcess(['-qec', quoted, '/dev/null'], {
    program: 'script',
    env: more,
  })
  // eslint-disable-next-line no-control-regex
  const plain = stdout.replaceAll(/\u001B\[\d+m/g, '')
  const [started, failed] = plain.split(/\r?\n/)
  expect(started).toMatch(/^\d\d:\d\d:\d\d   coordinator {8}step started  attempt=1$/)
  expect(failed).toMatch(/^\d\d:\d\d:\d\d ! coordinator {8}step failed  error=no route to host$/)
  expect(plain !== stdout).toBe(isColoured)
})

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
