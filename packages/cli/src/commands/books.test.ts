import { describe, expect, it } from 'vitest'
import { useFakeService } from '../../test-support/fake-service.ts'
import { run } from '../../test-support/run.ts'

const view = (Ready: boolean) => ({
  Realm: '1',
  Since: '2026-10-01T00:00:00.000Z',
  Until: '2026-11-01T00:00:00.000Z',
  Ready,
  Sentence: Ready
    ? 'ready to close: 2 entries are verified'
    : 'not ready to close: 1 run has failed',
  Runs: { Unfinished: 0, Failed: Ready ? 0 : 1, InDoubt: 0, IsLowerBound: false },
  Entries: {
    Verified: 2,
    Unverified: 0,
    Unprovable: 0,
    Changed: 0,
    Voided: 0,
    Deleted: 0,
    Missing: 0,
  },
})

const service = useFakeService({
  'GET /realms/1/books': () => ({ body: view(true) }),
  'GET /realms/2/books': () => ({ body: view(false) }),
})

const cli = (...args: readonly string[]) =>
  run(['books', 'check', ...args], { env: { COORDINATOR_URL: service.url } })

describe('the command `books check`', () => {
  it('prints one sentence, and exits with 0 if the books are ready and with 1 if not', async () => {
    expect(await cli('--realm', '1', '--month', '2026-10')).toMatchObject({
      code: 0,
      out: '1: ready to close: 2 entries are verified\n',
    })
    expect(await cli('--realm', '2', '--month', '2026-12')).toMatchObject({
      code: 1,
      out: '2: not ready to close: 1 run has failed\n',
    })
    expect(service.requests.map(({ query }) => query.toString())).toEqual([
      'since=2026-10-01T00%3A00%3A00.000Z&until=2026-11-01T00%3A00%3A00.000Z',
      'since=2026-12-01T00%3A00%3A00.000Z&until=2027-01-01T00%3A00%3A00.000Z',
    ])
    expect(JSON.parse((await cli('--realm', '1', '--month', '2026-10', '--json')).out)).toEqual(
      view(true),
    )
  })

  it.each([
    [[], '--realm REALM is needed'],
    [['--realm', '1'], '--month YYYY-MM or --since TIME is needed'],
    [['--realm', '1', '--month', '2026-13'], '--month must be YYYY-MM'],
    [['--realm', '1', '--month', '2026-10', '--since', '2026-10-01T00:00:00Z'], 'Either --month'],
    [['--realm', '1', '--month', '2026-10', 'x'], "Unexpected argument 'x'"],
  ])('rejects the arguments %j as wrong usage', async (args, message) => {
    const { code, err } = await cli(...args)
    expect([code, err]).toEqual([2, expect.stringContaining(message)])
  })
})
