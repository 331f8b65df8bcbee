/**
 * Tests an attacker who causes so many audit entries that the audit log drops older ones. The command `audit verify`
 * must report the gap.
 */
import { eventually } from '@integration-host/shared/test-support/eventually'
import { Redis } from 'ioredis'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { connectCompany } from '../support/clients/user-actions.ts'
import { parseJsonLines, runCli } from '../support/processes/cli.ts'
import { backend, startSystem, type System } from '../support/system.ts'

const REFRESHES = 12

describe('audit verify with a log whose older entries were trimmed', () => {
  let system: System
  let redis: Redis

  beforeAll(async () => {
    system = await startSystem(['sandbox-provider', 'token-service'])
    redis = new Redis(backend('TEST_REDIS_URL'))
    await connectCompany(system, '1')
  })
  afterAll(async () => {
    redis.disconnect()
    await system[Symbol.asyncDispose]()
  })

  const verify = async (...args: readonly string[]) => {
    const { code, stdout, stderr } = await runCli(['audit', 'verify', '--json', ...args], {
      env: { TOKEN_SERVICE_URL: system.url('token-service'), SERVICE_API_KEY: system.serviceKey },
    })
    const [report] = parseJsonLines<{ First: number; Head: string; Missing: number }>(stdout)
    if (report === undefined) throw new Error(stderr)
    return { code, report, stderr }
  }
  const seqOf = (head: string): number => Number(head.split(':')[0])

  it('`audit verify --expect` exits with code 6 if entries after the expected entry were trimmed, and reports their number', async () => {
    const saved = (await verify()).report.Head
    const refresh = `${system.url('token-service')}/credentials/ACC-1/refresh`
    for (let n = 0; n < REFRESHES; n++)
      expect((await system.call(refresh, { method: 'POST' })).status).toBe(200)
    await eventually(async () =>
      expect(seqOf((await verify()).report.Head)).toBeGreaterThanOrEqual(seqOf(saved) + REFRESHES),
    )
    expect(await verify('--expect', saved)).toMatchObject({ code: 0, report: { Missing: 0 } })

    // Trims the audit log as token-service does when it has more than AUDIT_ENTRIES entries.
    const first = seqOf(saved) + 6
    await redis.xtrim(`${system.redisKeyPrefix}credentials:audit`, 'MINID', `${first}-0`)

    const gap = await verify('--expect', saved)
    expect(gap).toMatchObject({ code: 6, report: { First: first, Missing: 5, Break: null } })
    expect(gap.stderr).toContain(`5 entries after the expected entry ${seqOf(saved)}`)
    const unexpected = await verify()
    expect(unexpected).toMatchObject({ code: 6, report: { Missing: first - 1, Break: null } })
    expect(unexpected.stderr).toContain(`before entry ${first}, so the log is not complete`)
  })
})
