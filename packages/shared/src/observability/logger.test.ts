import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'

const run = promisify(execFile)
const LOGGER = new URL('logger.ts', import.meta.url).href
const PROGRAM = `
  const { createLogger } = await import(${JSON.stringify(LOGGER)})
  createLogger('coordinator', 'info').info({ step: 'order' }, 'step started')
`
const command = [process.execPath, '--input-type=module', '--eval', PROGRAM]
const env = { PATH: process.env['PATH'] ?? '' }

it('writes JSON lines for machines', async () => {
  const [file = '', ...args] = command
  const { stdout } = await run(file, args, { env })
  expect(JSON.parse(stdout)).toMatchObject({
    level: 'info',
    service: 'coordinator',
    step: 'order',
    msg: 'step started',
  })
})

it.each([
  ['in colours', {}, true],
  ['without colours where NO_COLOR is set', { NO_COLOR: '1' }, false],
])('writes a line that people can read on a terminal, %s', async (_how, more, isColoured) => {
  // script(1) runs a command on a terminal of its own.
  const quoted = command.map((part) => `'${part.replaceAll("'", String.raw`'\''`)}'`).join(' ')
  const { stdout } = await run('script', ['-qec', quoted, '/dev/null'], {
    env: { ...env, ...more },
  })
  // eslint-disable-next-line no-control-regex
  const plain = stdout.replaceAll(/\u001B\[\d+m/g, '')
  expect(plain).toMatch(
    /^\[\d\d:\d\d:\d\d\.\d{3}\] INFO: coordinator: step started \{"step":"order"\}\s*$/,
  )
  expect(plain !== stdout).toBe(isColoured)
})
