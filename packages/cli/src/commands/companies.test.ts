import { describe, expect, it } from 'vitest'
import { problem, useFakeService } from '../../test-support/fake-service.ts'
import { run } from '../../test-support/run.ts'

const paused = {
  Realm: '42',
  Paused: true,
  PausedAt: '2026-11-23T08:00:00.000Z',
  PausedBy: 'ada@example.com',
  Reason: 'month end',
}

const service = useFakeService({
  'GET /realms/paused': () => ({ body: { items: [paused] } }),
  'POST /realms/42/pause': () => ({ body: paused }),
  'POST /realms/42/resume': () => ({
    body: { Realm: '42', Paused: false, PausedAt: null, PausedBy: null, Reason: null },
  }),
  'POST /realms/7/pause': () => problem(403, 'forbidden'),
})

const cli = (...args: readonly string[]) =>
  run(['companies', ...args], { env: { COORDINATOR_URL: service.url } })

describe('the commands `companies`', () => {
  it('`companies paused` prints for each paused company the time, the caller and the reason', async () => {
    const { code, out } = await cli('paused')
    expect(code).toBe(0)
    expect(out.split('\n').map((line) => line.split(/ {2,}/))).toEqual([
      ['COMPANY', 'PAUSED AT', 'BY', 'REASON'],
      ['42', paused.PausedAt, 'ada@example.com', 'month end'],
      [''],
    ])
    expect((await cli('paused', '--json')).json).toEqual([paused])
  })

  it('`companies pause` and `companies resume` send the text of --reason', async () => {
    const { code, out } = await cli('pause', '42', '--reason', 'month end')
    expect([code, out]).toEqual([0, '42 is paused.\n'])
    expect(service.requests.at(-1)?.body).toEqual({ Reason: 'month end' })
    expect((await cli('resume', '42')).out).toBe('42 runs again.\n')
    expect((await cli('pause', '42', '--json')).json).toEqual([paused])
    expect((await cli('pause', '7')).code).not.toBe(0)
  })

  it.each([
    [['pause'], 'The id of a company is needed'],
    [['pause', 'no company'], 'The id of a company is needed'],
    [['resume', '42', '43'], "Unexpected argument '43'"],
    [['paused', '42'], "Unexpected argument '42'"],
  ])('`companies` rejects the arguments %j as wrong usage', async (args, message) => {
    const { code, err } = await cli(...args)
    expect([code, err]).toEqual([2, expect.stringContaining(message)])
    expect(service.requests).toEqual([])
  })
})
