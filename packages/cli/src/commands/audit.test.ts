import {
  type AuditEntry,
  type AuditFact,
  type AuditHead,
  auditHash,
  auditStart,
  chain,
} from '@integration-host/shared/contracts/audit'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type FakeService, startFakeService } from '../../test-support/fake-service.ts'
import { run } from '../../test-support/run.ts'

const LENGTH = 2_500
const fact = (n: number): AuditFact => ({
  At: new Date(Date.UTC(2026, 10, 21) + n).toISOString(),
  Who: 'key 0123abcd',
  What: n % 2 === 0 ? 'refreshed' : 'handed_out',
  Name: `ACC-${n % 10}`,
  Version: n + 1,
  Outcome: 'ok',
})
const whole = chain(
  auditStart,
  Array.from({ length: LENGTH }, (_, n) => fact(n)),
)
const entry = (seq: number): AuditEntry => whole[seq - 1] as AuditEntry
const spelled = ({ Seq, Hash }: AuditHead): string => `${Seq}:${Hash}`
const last = entry(LENGTH)

let service: FakeService
let log: readonly AuditEntry[]
/** The head that the fake service reports; `null` means the newest entry of the log. */
let head: AuditHead | null
/** Is called before each response. The argument is the number of the request, counted from 1. */
let between: (call: number) => void

beforeEach(async () => {
  log = whole
  head = null
  between = () => {}
  service = await startFakeService({
    'GET /audit': ({ query }) => {
      between(service.requests.length)
      const limit = Number(query.get('limit'))
      const { Seq, Hash } = head ?? log.at(-1) ?? auditStart
      if (!query.has('after')) {
        // As in the real service, a page covers a part of the log, and contains only the matching entries of this part.
        const before = Number(query.get('before') ?? LENGTH + 1)
        const searched = log
          .filter((one) => one.Seq < before)
          .slice(-1_000)
          .toReversed()
        const wanted = searched.filter(({ Name }) => [null, Name].includes(query.get('name')))
        const items = wanted.slice(0, limit)
        const end = items.length === limit ? items.at(-1) : searched.at(-1)
        const next_before = (end?.Seq ?? 1) > 1 ? end?.Seq : null
        return { body: { items, head: { Seq, Hash }, next_before } }
      }
      const items = log.filter((one) => one.Seq > Number(query.get('after'))).slice(0, limit)
      return { body: { items, head: { Seq, Hash } } }
    },
  })
})
afterEach(() => service[Symbol.asyncDispose]())

const verify = (...args: readonly string[]) => run(['audit', 'verify', ...args], service)

describe('the command `audit list`', () => {
  it('`audit list` prints every entry in order, over all pages', async () => {
    const { code, json } = await run(['audit', 'list', '--json'], service)
    expect(code).toBe(0)
    expect(json).toEqual(whole)
    expect(service.requests.map(({ query }) => query.get('after'))).toEqual(['0', '1000', '2000'])
  })

  it('`audit list` prints only the entries that match the options --since and --name', async () => {
    const args = ['audit', 'list', '--since', '2481', '--name', 'ACC-7', '--json']
    expect((await run(args, service)).json).toEqual([entry(2_488), entry(2_498)])
    const { out } = await run(args.slice(0, -1), service)
    expect(out.split('\n')[0]).toMatch(/^SEQ {3}AT .* OUTCOME/)
    expect(out.split('\n')[1]).toMatch(/^2488 .*handed_out.*ACC-7/)
  })

  it('`audit list --newest` prints the newest entry first, over all pages', async () => {
    const { code, json } = await run(['audit', 'list', '--newest', '--json'], service)
    expect(code).toBe(0)
    expect(json).toEqual(whole.toReversed())
    expect(service.requests.map(({ query }) => query.get('before'))).toEqual([null, '1501', '501'])
  })

  it('`audit list --newest --name --limit` reads pages until it has found enough entries of the credential', async () => {
    log = whole.filter(({ Seq, Name }) => Name !== 'ACC-7' || Seq < 40)
    const args = ['audit', 'list', '--newest', '--name', 'ACC-7', '--limit', '2', '--json']
    expect((await run(args, service)).json).toEqual([entry(38), entry(28)])
    const inOrder = ['audit', 'list', '--name', 'ACC-7', '--limit', '2', '--json']
    expect((await run(inOrder, service)).json).toEqual([entry(8), entry(18)])
  })

  it('`audit list` rejects --newest together with --since, and a limit that is not a number', async () => {
    for (const args of [
      ['--newest', '--since', '1'],
      ['--limit', 'x'],
    ])
      expect((await run(['audit', 'list', ...args], service)).code).toBe(2)
  })

  it('`audit list` prints only the table header for an empty log', async () => {
    log = []
    const { code, out } = await run(['audit', 'list'], service)
    expect([code, out.split('\n')]).toEqual([0, [expect.stringMatching(/^SEQ/), '']])
  })
})

describe('the command `audit verify`', () => {
  it('`audit verify` prints the number of verified entries and the head of the hash chain', async () => {
    const { code, out, err } = await verify()
    expect([code, err]).toEqual([0, ''])
    expect(out).toBe(`2500 audit entries, 1 to 2500: the chain is intact.\n${spelled(last)}\n`)
    expect((await verify('--json')).json).toEqual([
      { Checked: LENGTH, First: 1, Head: spelled(last), Missing: 0, Break: null },
    ])
  })

  it('`audit verify` accepts an empty log as intact', async () => {
    log = []
    expect(await verify('--json')).toMatchObject({
      code: 0,
      json: [{ Checked: 0, First: null, Head: spelled(auditStart), Missing: 0, Break: null }],
    })
  })

  it('`audit verify` starts with the oldest remaining entry and reports the number of trimmed entries', async () => {
    log = whole.slice(700)
    const { code, json, err } = await verify('--json')
    expect([code, json]).toEqual([
      6,
      [{ Checked: 1_800, First: 701, Head: spelled(last), Missing: 700, Break: null }],
    ])
    expect(err).toContain(
      'no longer keeps 700 entries before entry 701, so the log is not complete',
    )
    const { out } = await verify()
    expect(out).toContain('1800 audit entries, 701 to 2500: 700 entries before')
    expect(out).not.toContain('intact')
  })

  it('`audit verify` reports entries as missing, and no break, if they are trimmed and written while it reads the log', async () => {
    log = whole.slice(0, 2_000)
    between = (call) => {
      if (call === 2) log = whole.slice(1_400)
    }
    expect(await verify('--json')).toMatchObject({
      code: 6,
      json: [{ First: 1, Missing: 400, Break: null }],
    })
  })

  it('`audit verify` accepts a page whose head names an entry that only the next page contains', async () => {
    log = whole.slice(0, 10)
    head = entry(11)
    between = (call) => {
      if (call === 3) log = whole.slice(0, 11)
    }
    expect(await verify('--json')).toMatchObject({ code: 0, json: [{ Checked: 11, Break: null }] })
  })

  const changed = { ...entry(1_500), Outcome: 'denied' }
  const resealed = { ...changed, Hash: auditHash(changed) }
  const rewritten = [
    ...whole.slice(0, 1_499),
    ...chain(
      entry(1_499),
      whole
        .slice(1_499)
        .map((one, n) => (n === 0 ? { ...fact(1_499), Outcome: 'denied' } : fact(one.Seq - 1))),
    ),
  ]
  it.each([
    ['an entry was changed', whole.with(1_499, changed), 1_500, 'it was changed'],
    [
      'an entry and its hash were changed',
      whole.with(1_499, resealed),
      1_501,
      'the entry before it is not the one it was written after',
    ],
    ['an entry was removed', whole.toSpliced(1_499, 1), 1_501, 'entry 1500 is missing before it'],
    [
      'an entry at the beginning of a page was removed',
      whole.toSpliced(1_000, 1),
      1_002,
      'entry 1001 is missing before it',
    ],
    [
      'an entry was inserted',
      whole.toSpliced(1_499, 0, entry(1_499)),
      1_499,
      'entry 1500 is missing',
    ],
    [
      'two entries were swapped',
      whole.with(9, entry(12)).with(11, entry(10)),
      12,
      'entry 10 is missing',
    ],
  ])('`audit verify` reports with exit code 1 that %s', async (_, broken, seq, reason) => {
    log = broken
    const { code, out, err } = await verify()
    expect({ code, out }).toEqual({ code: 1, out: '' })
    expect(err).toContain(`The audit log is broken at entry ${seq}: ${reason}`)
    expect(await verify('--json')).toMatchObject({
      code: 1,
      json: [{ Break: { Seq: seq, Reason: expect.stringContaining(reason) } }],
    })
  })

  it('if the head of the log names an entry that the log does not contain, `audit verify` reports where the log ends', async () => {
    log = whole.slice(0, 2_400)
    head = last
    const { code, err } = await verify()
    expect([code, err]).toEqual([1, expect.stringContaining('the log ends with entry 2400')])
  })

  it('`audit verify` reports a head whose hash differs from the hash of the newest entry', async () => {
    head = { Seq: LENGTH, Hash: 'f'.repeat(64) }
    expect((await verify()).err).toContain('the head of the log has another hash')
  })

  describe('the command `audit verify --expect`', () => {
    const expecting = (seq: number) => verify('--expect', spelled(entry(seq)))

    it.each([1, 1_000, 1_001, LENGTH])(
      '`audit verify --expect` accepts entry %i as the expected entry if the log is unchanged',
      async (seq) => {
        expect((await expecting(seq)).code).toBe(0)
      },
    )

    it('if the expected entry is the newest trimmed entry, `audit verify --expect` accepts the log', async () => {
      log = whole.slice(700)
      expect((await expecting(700)).code).toBe(0)
    })

    it.each([
      [
        'the newest entries were removed',
        whole.slice(0, 2_400),
        'it is missing: the log ends with entry 2400',
      ],
      ['all entries were removed', [], 'it is missing: the log ends with entry 0'],
      ['the newest entries were rewritten', rewritten, 'it differs from the expected entry'],
    ])(
      '`audit verify --expect` reports that %s although the hash chain is intact',
      async (_, broken, reason) => {
        log = broken
        expect((await verify()).code).toBe(0)
        const { code, err } = await expecting(LENGTH)
        expect([code, err]).toEqual([1, `The audit log is broken at entry ${LENGTH}: ${reason}.\n`])
      },
    )

    it.each([
      [699, 1],
      [495, 205],
      [0, 700],
    ])(
      '`audit verify --expect` exits with code 6 if the expected entry %i and the next %i entries were trimmed',
      async (seq, missing) => {
        log = whole.slice(700)
        const expected = spelled(seq === 0 ? auditStart : entry(seq))
        const { code, json, err } = await verify('--json', '--expect', expected)
        expect([code, json]).toEqual([
          6,
          [{ Checked: 1_800, First: 701, Head: spelled(last), Missing: missing, Break: null }],
        ])
        expect(err).toContain(`after the expected entry ${seq}, so these were not checked`)
      },
    )

    it('`audit verify --expect` reports a broken chain even if the expected entry was trimmed', async () => {
      log = whole.slice(700).toSpliced(100, 1)
      const { code, err } = await expecting(495)
      expect([code, err]).toEqual([1, expect.stringContaining('broken at entry 802')])
    })

    it('`audit verify --expect` accepts that entries before the expected entry were trimmed', async () => {
      log = whole.slice(700)
      const { code, json, err } = await verify('--json', '--expect', spelled(entry(1_200)))
      expect([code, err]).toEqual([0, ''])
      expect(json).toMatchObject([{ Missing: 0, Break: null }])
    })
  })
})
