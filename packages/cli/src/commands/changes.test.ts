import { describe, expect, it } from 'vitest'
import { problem, useFakeService } from '../../test-support/fake-service.ts'
import { run } from '../../test-support/run.ts'

const read = {
  Realm: '1',
  ReadUntil: '2026-11-23T03:00:00.000Z',
  LagSeconds: 7_200,
  SweptAt: '2026-11-23T03:00:01.000Z',
  Events: 12,
  Incomplete: 'deletions of Invoice\u001B[31m',
}
const begun = { ...read, Realm: '2', SweptAt: null, Events: 0, Incomplete: null }

const service = useFakeService({
  'GET /realms/1/changes': () => ({ body: read }),
  'GET /realms/2/changes': () => ({ body: begun }),
  'GET /realms/3/changes': () => problem(404, 'change_feed_not_found'),
})

const cli = (...args: readonly string[]) =>
  run(['changes', ...args], { env: { COORDINATOR_URL: service.url } })

describe('the command `changes`', () => {
  it('`changes` prints how far the change feed was read, when it was read last, and the objects that could not be read', async () => {
    const { code, out } = await cli('1')
    expect([code, out]).toEqual([
      0,
      'read until  2026-11-23T03:00:00.000Z (120 minutes ago)\n' +
        'last sweep  2026-11-23T03:00:01.000Z, 12 events\n' +
        'not read    deletions of Invoice�[31m\n',
    ])
    expect((await cli('2')).out).toContain('last sweep  none yet\n')
  })

  it('`changes --json` prints one JSON object', async () => {
    expect(JSON.parse((await cli('1', '--json')).out)).toEqual(read)
  })

  it('`changes` exits with 3 for a company whose change feed is not read', async () => {
    expect((await cli('3')).code).toBe(3)
  })

  it.each([[[]], [['1', '2']], [['1/2']], [['--realm', '1']]])(
    '`changes` rejects the arguments %j as wrong usage',
    async (args) => {
      expect((await cli(...args)).code).toBe(2)
    },
  )
})
