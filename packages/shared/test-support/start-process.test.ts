import { describe, expect, it } from 'vitest'
import { listeningUrl, runProcess, startProcess } from './start-process.ts'

const evaluate = (program: string): readonly string[] => ['-e', program]
const waiting = 'setInterval(() => {}, 1_000)'

describe('runProcess()', () => {
  it('runProcess returns the exit code and each output stream separately', async () => {
    const program = `console.log('one'); console.error('two'); process.exitCode = 3`
    expect(await runProcess(evaluate(program))).toEqual({
      code: 3,
      stdout: 'one\n',
      stderr: 'two\n',
    })
  })

  it('runProcess passes only PATH, the compile cache of Node and the given variables to the process', async () => {
    const program = `console.log(Object.keys(process.env).sort().join())`
    const { stdout } = await runProcess(evaluate(program), { env: { GIVEN: '1' } })
    expect(stdout).toBe('GIVEN,NODE_COMPILE_CACHE,PATH\n')
  })
})

describe('a process that startProcess has started', () => {
  it('listeningUrl resolves with the address that a service logs when it listens', async () => {
    const line = JSON.stringify({ url: 'http://127.0.0.1:1', msg: 'service is listening' })
    await using started = startProcess(
      evaluate(`setTimeout(() => console.log('${line}'), 50); ${waiting}`),
    )
    expect(await listeningUrl(started)).toBe('http://127.0.0.1:1')
  })

  it('the rate limiter with prefetched permits', async () => {
    await using started = startProcess(evaluate(`console.error('port 1 is taken')`))
    await expect(started.waitForOutput(/listening/)).rejects.toThrow(
      /the process ended before .*\nport 1 is taken\n$/,
    )
  })

  it('disposing a started process kills the process', async () => {
    const started = startProcess(evaluate(waiting))
    await started[Symbol.asyncDispose]()
    expect(await started.ended).toMatchObject({ code: null })
  })

  it('stop() returns the exit code of a process that has already ended', async () => {
    const started = startProcess(evaluate('process.exitCode = 4'))
    await started.ended
    expect(await started.stop('SIGTERM')).toBe(4)
  })
})
