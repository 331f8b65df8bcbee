import { expect, it } from 'vitest'
import { runProcess } from '../../test-support/start-process.ts'

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
