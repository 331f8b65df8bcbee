import type { KeyRotationProgress } from '@integration-host/shared/contracts/custody'
import { describe, expect, it } from 'vitest'
import { type FakeResponse, problem, startFakeService } from '../../test-support/fake-service.ts'
import { run } from '../../test-support/run.ts'

const line = (members: Partial<KeyRotationProgress>): KeyRotationProgress => ({
  ActiveKey: 'fresh',
  Total: 900,
  Resealed: 500,
  Current: 0,
  Refused: 0,
  FirstRefused: [],
  IsFinished: false,
  RetiredKeys: [],
  ...members,
})
const end = line({ Resealed: 880, Current: 20, IsFinished: true, RetiredKeys: ['old', 'older'] })
const ndjson = (...lines: readonly KeyRotationProgress[]): FakeResponse => ({
  body: lines.map((one) => `${JSON.stringify(one)}\n`).join(''),
  headers: { 'Content-Type': 'application/x-ndjson' },
})

async function rotate(
  response: FakeResponse,
  args: readonly string[] = [],
  typed?: readonly string[],
) {
  await using service = await startFakeService({ 'POST /key-rotations': () => response })
  return await run(['credentials', 'rotate-keys', ...args], {
    url: service.url,
    ...(typed !== undefined && { typed }),
  })
}

describe('the command `credentials rotate-keys`', () => {
  it('`credentials rotate-keys` prints the ids of the keys in CREDENTIAL_KEYS that are no longer needed', async () => {
    const { code, out, err } = await rotate(ndjson(line({}), end))
    expect([code, err]).toEqual([0, ''])
    expect(out).toContain('fresh: 880 now, 20 before.')
    expect(out).toContain('may be removed from CREDENTIAL_KEYS: old, older\n')
  })

  it('`credentials rotate-keys` shows the progress of the rotation on a terminal and clears it at the end', async () => {
    const { err } = await rotate(ndjson(line({}), end), [], [])
    expect(err).toBe('\r\u001b[K500 of 900 credentials\r\u001b[K')
  })

  it('with --json, `credentials rotate-keys` prints only the final report', async () => {
    const { code, json, err } = await rotate(ndjson(line({}), end), ['--json'])
    expect([code, json, err]).toEqual([0, [end], ''])
  })

  it('`credentials rotate-keys` prints the names of credentials that no key can decrypt, and exits with code 1', async () => {
    const refused = { Resealed: 888, Refused: 12, FirstRefused: ['ACC-3', 'ACC-4'] }
    const { code, out, err } = await rotate(ndjson(line({ ...refused, IsFinished: true })))
    expect(code).toBe(1)
    expect(out).not.toContain('may be removed')
    expect(err).toContain(
      '12 cannot be decrypted with any of CREDENTIAL_KEYS and were not changed: ACC-3, ACC-4 …',
    )
  })

  it.each([
    ['ends early', ndjson(line({})), 1, 'interrupted after 500 credentials'],
    ['is cut off', { ...ndjson(line({})), isCut: true }, 5, 'cannot be reached'],
    ['has the status 503', problem(503, 'store_unavailable'), 1, 'store_unavailable'],
  ])(
    '`credentials rotate-keys` fails if the response of token-service %s',
    async (_, response, expected, message) => {
      const { code, out, err } = await rotate(response)
      expect({ code, out }).toEqual({ code: expected, out: '' })
      expect(err).toContain(message)
    },
  )
})
