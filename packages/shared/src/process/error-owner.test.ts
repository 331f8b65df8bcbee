import { describe, expect, it } from 'vitest'
import { runProcess } from '../../test-support/start-process.ts'

/** Runs a service whose start function has this body, in an own OS process. */
const runServiceWith = (body: string) =>
  runProcess([
    '--input-type=module',
    '--eval',
    `import { ownErrors } from ${JSON.stringify(import.meta.resolve('./error-owner.ts'))}
     import { runService } from ${JSON.stringify(import.meta.resolve('./lifecycle.ts'))}
     const owner = (error, kind) => console.log('owned', kind, error?.message)
     const stop = new AbortController()
     await runService('service', async () => {
       ${body}
       setTimeout(() => stop.abort(), 2_000)
       return { url: '', async [Symbol.asyncDispose]() {} }
     }, { stop: stop.signal })`,
  ])

describe('an error that nothing handles', () => {
  it('an error with an owner goes to its owner, and the service goes on', async () => {
    const { code, stdout } = await runServiceWith(`ownErrors(owner, () => {
      Promise.reject(new Error('a promise'))
      setTimeout(() => { throw new Error('a timer') }, 1)
    })`)
    expect(code).toBe(0)
    expect(stdout).toContain('owned rejection a promise')
    expect(stdout).toContain('owned exception a timer')
    expect(stdout).toContain('service has shut down')
  })

  it.each([
    ['Promise.reject(new Error("the cause"))', 'the cause'],
    ['Promise.reject("the cause")', 'not an error: the cause'],
    ['setTimeout(() => { throw new Error("the cause") }, 1)', 'the cause'],
    ['setTimeout(() => { throw null }, 1)', 'not an error: object'],
  ])(
    'an error without an owner ends the service with its cause in the last line: %s',
    async (body, cause) => {
      const { code, stdout } = await runServiceWith(body)
      const last = JSON.parse(stdout.trim().split('\n').at(-1) ?? '') as object
      expect(code).toBe(1)
      expect(last).toMatchObject({ level: 'fatal', err: { message: cause } })
    },
  )

  it('the cause follows the lines that other loggers of the service have logged before, although they are written in the background', async () => {
    const { stdout } = await runServiceWith(`
      const { createLogger } = await import(${JSON.stringify(import.meta.resolve('../observability/logger.ts'))})
      const logger = createLogger('other', 'info')
      setTimeout(() => {
        for (let n = 0; n < 1_000; n += 1) logger.info({ n, pad: 'x'.repeat(1_000) }, 'line')
        throw new Error('the cause')
      }, 1)`)
    const lines = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { msg: string })
    expect(lines.filter(({ msg }) => msg === 'line')).toHaveLength(1_000)
    expect(lines.at(-1)).toMatchObject({ level: 'fatal', err: { message: 'the cause' } })
  })
})
