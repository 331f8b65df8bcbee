import {
  CREDENTIALS_EXCHANGE,
  type CredentialEvent,
  credentialRoutingKey,
} from '@integration-host/shared/contracts/credential'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { connect } from 'amqplib'
import { describe, expect, it } from 'vitest'
import { backend, startSystem, type System } from '../support/system.ts'
import { openDatabase } from '../support/faults/database-assertions.ts'
import { orders, queueOrders } from '../support/faults/coordinators.ts'
import { coordinatorWithFailpoints } from '../support/processes/failpoints.ts'
import { countStepMessages } from '../support/faults/message-counter.ts'
import { isFaultRun } from '../support/faults/scale.ts'
import { type ReceivedCall, startStepTarget } from '../support/fakes/step-target.ts'

const WAITING = 1_000
/**
 * The cool-down after a 429. If no call of a company gets a 429, the transactions of the company take much less time
 * than this.
 */
const COOL_DOWN_MS = 10_000
/** The coordinator's default limit for the number of steps in flight. */
const PREFETCH = 64

const realmOf = ({ path }: ReceivedCall): string => path.split('/')[3] ?? ''
const ofRealm = (count: number, realm: string) =>
  orders(count, `${realm}-`).map((order) => ({ ...order, Realm: realm }))

async function publishStored(system: System, realm: string): Promise<void> {
  const connection = await connect(backend('TEST_AMQP_URL'))
  const channel = await connection.createConfirmChannel()
  const event: CredentialEvent = {
    Name: `ACC-${realm}`,
    Environment: realm,
    Expiry: new Date(Date.now() + 3_600_000).toISOString(),
    Version: 2,
    At: new Date().toISOString(),
  }
  channel.publish(
    system.amqpPrefix + CREDENTIALS_EXCHANGE,
    credentialRoutingKey('stored'),
    Buffer.from(JSON.stringify(event)),
    { messageId: `ACC-${realm}/2/stored` },
  )
  await channel.waitForConfirms()
  await connection.close()
}

/**
 * In these tests the fake target replaces the gateway. The first of the three steps calls a company's API through it.
 */
describe.runIf(isFaultRun)('transactions that call the API of a company', () => {
  const env = (url: string) => ({
    PROCESS: 'company',
    GATEWAY_URL: url,
    LOCAL_PULL_SECONDS: '1',
    REMOTE_PULL_SECONDS: '2',
  })

  it('a thousand waiting transactions of a company resume after a reconnect, with fewer than six messages each on average', async ({
    annotate,
  }) => {
    await using target = await startStepTarget()
    await using system = await startSystem([])
    const coordinator = system.start('coordinator', env(target.url), coordinatorWithFailpoints)
    await system.ready('coordinator')
    await using database = await openDatabase(system)
    await using messages = await countStepMessages(system)
    let isFaulted = true
    target.intercept = (_, response) => {
      if (isFaulted) response.writeHead(424).end('{"code":"credential_faulted"}')
      return isFaulted
    }
    await queueOrders(system, coordinator.url, ofRealm(WAITING, '7001'))
    const waiting = async (): Promise<number> => {
      const [row] = await database.sql<{ count: number }[]>`
        select count(*)::int as count from "Order_Header" where "Status" = 'Waiting'`
      return row?.count ?? 0
    }
    await eventually(async () => expect(await waiting()).toBe(WAITING))
    const before = messages.published
    isFaulted = false
    const reconnectedAt = performance.now()
    await publishStored(system, '7001')
    await eventually(async () =>
      expect(await database.countRuns()).toEqual({ runs: WAITING, completed: WAITING }),
    )
    const seconds = ((performance.now() - reconnectedAt) / 1_000).toFixed(1)
    expect(target.calls).toHaveLength(2 * WAITING)
    const perTransaction = (messages.published - before) / WAITING
    expect(perTransaction).toBeLessThan(6)
    await annotate(
      `${WAITING} transactions waiting for a faulted credential: all complete ${seconds} s after one reconnect, ${perTransaction.toFixed(2)} messages and one call each`,
      'measurement',
    )
  }, 90_000)

  it('an upstream 429 delays only the transactions that call the same company', async ({
    annotate,
  }) => {
    await using target = await startStepTarget()
    await using system = await startSystem([])
    const coordinator = system.start('coordinator', env(target.url), coordinatorWithFailpoints)
    await system.ready('coordinator')
    await using database = await openDatabase(system)
    let coolDownUntil = Number.POSITIVE_INFINITY
    target.intercept = (call, response) => {
      if (realmOf(call) !== '8001' || call.at >= coolDownUntil) return false
      coolDownUntil = Math.min(coolDownUntil, call.at + COOL_DOWN_MS)
      response.writeHead(429, { 'retry-after': String(COOL_DOWN_MS / 1_000) }).end()
      return true
    }
    const [delayed, others] = [ofRealm(200, '8001'), ofRealm(200, '8002')]
    const mixed = delayed.flatMap((one, n) => [one, ...others.slice(n, n + 1)])
    await queueOrders(system, coordinator.url, mixed)
    const completed = async (realm: string): Promise<number> => {
      const [row] = await database.sql<{ count: number }[]>`
        select count(*)::int as count from "Order_Header"
        where "Status" = 'Completed' and "Realm" = ${realm}`
      return row?.count ?? 0
    }
    await eventually(async () => expect(await completed('8002')).toBe(others.length))
    const othersDoneAt = performance.now()
    expect(await completed('8001')).toBe(0)
    await eventually(async () => expect(await completed('8001')).toBe(delayed.length), {
      seconds: 60,
    })
    const calls = (realm: string) => target.calls.filter((call) => realmOf(call) === realm).length
    expect(calls('8002')).toBe(others.length)
    // Each step that was in flight at the first 429 may have received a 429 as well. No further step may call the
    // company's API during the cool-down.
    expect(calls('8001')).toBeLessThanOrEqual(delayed.length + PREFETCH)
    const charged = await database.sql<{ outcome: string; attempt: number }[]>`
      select distinct "Outcome" as outcome, "Attempt" as attempt from "Order_Attempt" order by 1`
    expect(charged.map((row) => ({ ...row }))).toEqual([
      { outcome: 'completed', attempt: 1 },
      { outcome: 'http_429', attempt: 1 },
    ])
    const after = target.calls
      .filter((call) => realmOf(call) === '8001' && call.at >= coolDownUntil)
      .map(({ at }) => at)
    const inOneSecond = after.map((at) =>
      after.filter((other) => at - other < 1_000 && other <= at),
    )
    const busiest = Math.max(...inOneSecond.map(({ length }) => length))
    const ahead = ((coolDownUntil - othersDoneAt) / 1_000).toFixed(1)
    await annotate(
      `429 with Retry-After ${COOL_DOWN_MS / 1_000} s for one company: ${others.length} transactions of another company were completed ${ahead} s before the cool-down ended; the ${delayed.length} delayed transactions made ${calls('8001')} calls in total, at most ${busiest} per second after the cool-down, and no attempt was counted`,
      'measurement',
    )
  }, 120_000)
})
