/** Runs doctor against servers that only this test uses: a Redis with a replica, and a PostgreSQL with a standby. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import postgres from 'postgres'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { freePort } from '@integration-host/shared/test-support/free-ports'
import { describe, expect, it } from 'vitest'
import { startPrivateServers } from '../support/backends/private-servers.ts'
import { untilReachable } from '../support/backends/probes.ts'
import { serverFolders } from '../support/backends/server-binaries.ts'
import { ServerGroup } from '../support/backends/server-group.ts'
import { parseJsonLines, runCli } from '../support/processes/cli.ts'

interface CheckResult {
  readonly Check: string
  readonly Verdict: string
  readonly Found: string
  readonly Mend: string | null
}

/** Runs doctor for one backend. Resolves with the result of one check. */
async function doctor(
  subject: 'redis' | 'postgres',
  check: string,
  env: Readonly<Record<string, string>>,
): Promise<CheckResult | undefined> {
  const { stdout } = await runCli(['doctor', '--json', '--only', subject], { env })
  return parseJsonLines<CheckResult>(stdout).find(({ Check }) => Check === check)
}

/** Starts a Sentinel that watches the primary `main`. */
async function startSentinel(primary: URL): Promise<AsyncDisposable & { readonly port: number }> {
  const port = await freePort()
  const group = new ServerGroup()
  const config = join(group.folder, 'sentinel.conf')
  const lines = [
    `port ${port}`,
    'bind 127.0.0.1',
    `dir ${group.folder}`,
    `sentinel monitor main ${primary.hostname} ${primary.port} 1`,
    `sentinel auth-pass main ${primary.password}`,
    'sentinel down-after-milliseconds main 5000',
  ]
  await writeFile(config, `${lines.join('\n')}\n`)
  const programs = (await serverFolders(['redis'])).get('redis') ?? ''
  const server = group.start({
    program: join(programs, 'redis-server'),
    args: [config, '--sentinel'],
    logFile: join(group.folder, 'log'),
    stopSignal: 'TERM',
  })
  await untilReachable('redis', `redis://127.0.0.1:${port}`, {
    deadlineMs: 30_000,
    whileRunning: () => server.assertRunning(),
  })
  return { port, [Symbol.asyncDispose]: () => group.stop() }
}

describe('the doctor command against replicated backends', () => {
  it('doctor compares the number of Redis replicas with REDIS_REPLICAS and with min-replicas-to-write', async () => {
    await using opened = new AsyncDisposableStack()
    const urls: URL[] = []
    for (const _ of ['primary', 'replica']) {
      const { backends, stop } = await startPrivateServers(['redis'])
      opened.defer(stop)
      urls.push(new URL(backends.redis?.url ?? ''))
    }
    const [primaryUrl, replicaUrl] = urls as [URL, URL]
    const connect = ({ href }: URL): Redis => {
      const redis = new Redis(href)
      opened.defer(() => redis.disconnect())
      return redis
    }
    const primary = connect(primaryUrl)
    const replica = connect(replicaUrl)
    const replicas = (env: Readonly<Record<string, string>> = {}) =>
      doctor('redis', 'replicas', { REDIS_URL: primaryUrl.href, ...env })

    expect(await replicas()).toMatchObject({ Verdict: 'ok', Found: 'none' })
    expect(await replicas({ REDIS_REPLICAS: '1' })).toMatchObject({
      Verdict: 'problem',
      Found: '0 connected; 1 needed',
    })

    await replica.config('SET', 'masterauth', primaryUrl.password)
    await replica.replicaof(primaryUrl.hostname, primaryUrl.port)
    await eventually(async () => expect(await primary.info('replication')).toMatch(/state=online/))
    expect(await replicas()).toMatchObject({
      Verdict: 'problem',
      Found: expect.stringContaining('REDIS_REPLICAS is 0'),
      Mend: expect.stringContaining('REDIS_REPLICAS=1'),
    })
    expect(await replicas({ REDIS_REPLICAS: '1' })).toMatchObject({
      Verdict: 'warning',
      Found: '1 connected; all of them needed',
    })
    await primary.config('SET', 'min-replicas-to-write', '2')
    expect(await replicas({ REDIS_REPLICAS: '1' })).toMatchObject({
      Verdict: 'problem',
      Found: '1 connected; 2 needed',
    })

    // One of the two Sentinels is unresponsive. The other Sentinel reports the primary.
    const sentinel = opened.use(await startSentinel(primaryUrl))
    const sentinels = `redis+sentinel://:${primaryUrl.password}@127.0.0.1:2,127.0.0.1:${sentinel.port}`
    expect(await replicas({ REDIS_URL: `${sentinels}/main` })).toMatchObject({
      Found: '1 connected; 2 needed',
    })
    const lag = { REDIS_URL: `${sentinels}/main` }
    expect(await doctor('redis', 'min-replicas-max-lag', lag)).toMatchObject({
      Verdict: 'warning',
      Found: '10 s, and Sentinel replaces a primary after 5 s',
    })
    expect(await doctor('redis', 'connection', { REDIS_URL: `${sentinels}/other` })).toMatchObject({
      Verdict: 'problem',
      Found: expect.stringContaining('knows no primary of this name'),
    })
    expect(await doctor('redis', 'role', { REDIS_URL: replicaUrl.href })).toMatchObject({
      Verdict: 'problem',
      Found: 'slave',
    })
  })

  it('doctor reports PostgreSQL standbys for which no commit waits, and a single standby for which every commit waits', async () => {
    await using opened = new AsyncDisposableStack()
    const { backends, stop } = await startPrivateServers(['postgres'])
    opened.defer(stop)
    const url = backends.postgres?.url ?? ''
    const sql = postgres(url, { max: 1, onnotice: () => {} })
    opened.defer(() => sql.end({ timeout: 1 }))
    const standbys = () => doctor('postgres', 'standbys', { DATABASE_URL: url })
    expect(await standbys()).toMatchObject({ Verdict: 'ok', Found: 'none' })

    // pg_receivewal streams the write-ahead log as a standby does; with --synchronous it also confirms each write.
    const group = new ServerGroup()
    opened.defer(() => group.stop())
    const programs = (await serverFolders(['postgres'])).get('postgres') ?? ''
    const standby = group.start({
      program: join(programs, 'pg_receivewal'),
      args: ['--synchronous', '-D', group.folder, '-d', `${url}?application_name=standby`],
      logFile: join(group.folder, 'log'),
      stopSignal: 'TERM',
    })
    const untilSyncState = (wanted: string) =>
      eventually(async () => {
        await standby.assertRunning()
        const [row] = await sql<{ state: string; sync: string }[]>`
          select state, sync_state as sync from pg_stat_replication`
        expect(row).toEqual({ state: 'streaming', sync: wanted })
      })
    await untilSyncState('async')
    expect(await standbys()).toMatchObject({
      Verdict: 'problem',
      Found: '1, asynchronous: if one is promoted, accepted orders vanish',
    })

    await sql`alter system set synchronous_standby_names = 'ANY 1 (*)'`
    await sql`select pg_reload_conf()`
    await untilSyncState('quorum')
    expect(await standbys()).toMatchObject({
      Verdict: 'warning',
      Found: '1 synchronous, all of them needed',
    })

    await standby.kill()
    await eventually(async () =>
      expect(await standbys()).toMatchObject({
        Verdict: 'problem',
        Found: '0 synchronous, 1 needed: every commit waits',
      }),
    )
  })
})
