import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type FakeService, startFakeService } from '../../test-support/fake-service.ts'
import { run } from '../../test-support/run.ts'

const done = { erased: 2, files: 1, filesLeft: 0, more: false, notEnded: 0, unknown: 0 }

let responses: (typeof done)[]
let service: FakeService
beforeEach(async () => {
  responses = [done]
  service = await startFakeService({
    'POST /erasures': () => ({ body: responses.shift() ?? done }),
  })
})
afterEach(() => service[Symbol.asyncDispose]())

const start = (...args: readonly string[]) =>
  run(['erasures', 'start', ...args], { env: { COORDINATOR_URL: service.url } })

describe('the command `erasures start`', () => {
  it('`erasures start` erases the runs of a company, and repeats its request until no run is left', async () => {
    responses = [{ ...done, more: true }, done]
    const { code, out, err } = await start('--realm', '7', '--reason', 'case 7')
    expect([code, out]).toEqual([0, '4 runs erased, 2 files removed.\n'])
    expect(err).toContain('2 runs erased so far')
    expect(service.requests.map(({ body }) => body)).toEqual([
      { Realm: '7', Reason: 'case 7' },
      { Realm: '7', Reason: 'case 7' },
    ])
  })

  it('`erasures start` prints which data could not be erased, and exits with code 1', async () => {
    responses = [{ ...done, notEnded: 1, filesLeft: 1, unknown: 1 }]
    const { code, out } = await start('--process', 'P', '--id', 'a', '--id', 'b')
    expect([code, out]).toEqual([
      1,
      '2 runs erased, 1 file removed.\nIds without a run: 1.\n' +
        'Runs that have not ended: 1. Repeat the command when they have.\n' +
        'Runs whose files were not removed: 1. See the log of the coordinator.\n',
    ])
    expect(service.requests[0]?.body).toEqual({ Process: 'P', Ids: ['a', 'b'] })
    expect((await start('--realm', '7', '--json')).json).toEqual([done])
    await start('--realm', '7', '--cancel-waiting')
    expect(service.requests.at(-1)?.body).toEqual({ Realm: '7', CancelWaiting: true })
  })

  it.each([
    [],
    ['--process', 'P', '--id', 'a', '--cancel-waiting'],
    ['--realm', '7', '--id', 'a'],
    ['--id', 'a'],
    ['--realm', '7', 'more'],
  ])('`erasures start` rejects the arguments %j and sends no request', async (...args) => {
    expect((await start(...args)).code).toBe(2)
    expect(service.requests).toEqual([])
  })
})
