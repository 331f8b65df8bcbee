import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type FakeService, startFakeService } from '../../test-support/fake-service.ts'
import { run } from '../../test-support/run.ts'

const items = [
  { Realm: '1', Calls: { core: 5, query: 2 }, Metered: 2 },
  { Realm: '2', Calls: { cdc: 1 }, Metered: 1 },
]
let budget: number | null
let service: FakeService
beforeEach(async () => {
  budget = 4
  service = await startFakeService({
    'GET /usage': ({ query }) => {
      const isSecond = query.get('cursor') === '1'
      const realm = query.get('realm')
      return {
        body: {
          Month: query.get('month') ?? '2026-11',
          Budget: budget,
          Total: { Calls: { core: 5, query: 2, cdc: 1 }, Metered: 3 },
          items:
            realm === null
              ? items.slice(isSecond ? 1 : 0, isSecond ? 2 : 1)
              : [
                  items.find(({ Realm }) => Realm === realm) ?? {
                    Realm: realm,
                    Calls: {},
                    Metered: 0,
                  },
                ],
          next_cursor: isSecond || realm !== null ? null : '1',
        },
      }
    },
  })
})
afterEach(() => service[Symbol.asyncDispose]())

const cli = (...args: readonly string[]) =>
  run(['usage', ...args], { env: { GATEWAY_URL: service.url } })

describe('the command `usage`', () => {
  it('`usage` prints the calls of each company by kind, and the used share of the budget', async () => {
    const { code, out, err } = await cli()
    expect([code, err]).toEqual([0, '2026-11: 3 metered calls of 4 (75.0 %).\n'])
    const rows = out.split('\n').map((line) => line.split(/ +/))
    expect(rows[0]?.slice(0, 4)).toEqual(['REALM', 'METERED', 'CORE', 'READ'])
    expect(rows.slice(1, 3)).toEqual([
      ['1', '2', '5', '0', '2', '0', '0', '0', '0'],
      ['2', '1', '0', '0', '0', '1', '0', '0', '0'],
    ])
  })

  it('`usage --json` sends the month and prints one JSON object for each company', async () => {
    budget = null
    const { out, err } = await cli('--month', '2026-10', '--json')
    expect(err).toBe('2026-10: 3 metered calls.\n')
    expect(
      out
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line) as object),
    ).toEqual(items)
  })

  it('if no call of the company was counted, `usage --realm` prints a warning that names the realm and the month', async () => {
    expect((await cli('--realm', '2')).err).not.toContain('No call')
    const { code, err } = await cli('--realm', 'abc', '--month', '2026-10')
    expect([code, err]).toEqual([
      0,
      expect.stringContaining('No call of company abc was counted in 2026-10.'),
    ])
  })

  it('`usage` rejects an invalid realm before it sends a request', async () => {
    const { code, err } = await cli('--realm', 'a/b')
    expect([code, err]).toEqual([2, expect.stringContaining('--realm must be 1-64 of')])
    expect(service.requests).toEqual([])
  })

  it('the help of `usage` says what is counted, and where the options of all commands are', async () => {
    const { out } = await cli('--help')
    expect(out).toContain('The gateway counts them')
    expect(out).toContain('integration-host --help')
  })

  it('`usage` rejects an unknown option and a positional argument', async () => {
    expect((await cli('--months', '1')).code).toBe(2)
    expect((await cli('2026-10')).code).toBe(2)
  })
})
