import {
  CREDENTIALS_EXCHANGE,
  type CredentialEvent,
  credentialRoutingKey,
} from '@integration-host/shared/contracts/credential-event'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { connect } from 'amqplib'
import { describe, expect, it } from 'vitest'
import { backend, startSystem, type System } from '../support/system.ts'
import { openBooks } from './support/books.ts'
import { dyingMain, orders, queueBulk } from './support/coordinators.ts'
import { countStepMessages } from './support/message-counter.ts'
import { isFaultRun } from './support/scale.ts'
import { type SeenCall, startTarget } from './support/target.ts'

const PARKED = 1_000
/** Many times what the others need, on a busy machine as well. */
const HELD_MS = 10_000
/** How many steps a coordinator has in hand at most, unless it is told otherwise. */
const PREFETCH = 64

const realmOf = ({ path }: SeenCall): string => path.split('/')[3] ?? ''
const ofRealm = (count: number, realm: string) =>
  orders(count, `${realm}-`).map((order) => ({ ...order, Realm: realm }))

async function tellStored(system: System, realm: string): Promise<void> {
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

/** The target stands for the gateway; the first of three steps calls a company through it. */
describe.runIf(isFaultRun)('transactions of companies', () => {
  const env = (url: string) => ({
    PROCESS: 'company',
    GATEWAY_URL: url,
    LOCAL_PULL_SECONDS: '1',
    REMOTE_PULL_SECONDS: '2',
  })

  it('a thousand parked ones resume after one reconnect, without a storm', async ({ annotate }) => {
    await using target = await startTarget()
    await using system = await startSystem([])
    const coordinator = system.start('coordinator', env(target.url), dyingMain)
    await system.ready('coordinator')
    await using books = await openBooks(system)
    await using messages = await countStepMessages(system)
    let isFaulted = true
    target.intercept = (_, response) => {
      if (isFaulted) response.writeHead(424).end('{"code":"credential_faulted"}')
      return isFaulted
    }
    await queueBulk(system, coordinator.url, ofRealm(PARKED, '7001'))
    const waiting = async (): Promise<number> => {
      const [row] = await books.sql<{ count: number }[]>`
        select count(*)::int as count from "Order_Header" where "Status" = 'Waiting'`
      return row?.count ?? 0
    }
    await eventually(async () => expect(await waiting()).toBe(PARKED))
    const before = messages.published
    isFaulted = false
    const wokenAt = performance.now()
    await tellStored(system, '7001')
    await eventually(async () =>
      expect(await books.count()).toEqual({ headers: PARKED, completed: PARKED }),
    )
    const seconds = ((performance.now() - wokenAt) / 1_000).toFixed(1)
    expect(target.calls).toHaveLength(2 * PARKED)
    const perTransaction = (messages.published - before) / PARKED
    expect(perTransaction).toBeLessThan(6)
    await annotate(
      `${PARKED} transactions parked on a faulted credential: all complete ${seconds} s after one reconnect, ${perTransaction.toFixed(2)} messages and one call each`,
      'figure',
    )
  }, 90_000)

  it('an upstream 429 holds the steps of its company only', async ({ annotate }) => {
    await using target = await startTarget()
    await using system = await startSystem([])
    const coordinator = system.start('coordinator', env(target.url), dyingMain)
    await system.ready('coordinator')
    await using books = await openBooks(system)
    let heldUntil = Number.POSITIVE_INFINITY
    target.intercept = (call, response) => {
      if (realmOf(call) !== '8001' || call.at >= heldUntil) return false
      heldUntil = Math.min(heldUntil, call.at + HELD_MS)
      response.writeHead(429, { 'retry-after': String(HELD_MS / 1_000) }).end()
      return true
    }
    const [held, free] = [ofRealm(200, '8001'), ofRealm(200, '8002')]
    const mixed = held.flatMap((one, n) => [one, ...free.slice(n, n + 1)])
    await queueBulk(system, coordinator.url, mixed)
    const completed = async (realm: string): Promise<number> => {
      const [row] = await books.sql<{ count: number }[]>`
        select count(*)::int as count from "Order_Header"
        where "Status" = 'Completed' and "Realm" = ${realm}`
      return row?.count ?? 0
    }
    await eventually(async () => expect(await completed('8002')).toBe(free.length))
    const freeAt = performance.now()
    expect(await completed('8001')).toBe(0)
    await eventually(async () => expect(await completed('8001')).toBe(held.length), { seconds: 60 })
    const calls = (realm: string) => target.calls.filter((call) => realmOf(call) === realm).length
    expect(calls('8002')).toBe(free.length)
    // What was in hand with the first 429 may have been sent as well; of the others nothing leaves in vain.
    expect(calls('8001')).toBeLessThanOrEqual(held.length + PREFETCH)
    const charged = await books.sql<{ outcome: string; attempt: number }[]>`
      select distinct "Outcome" as outcome, "Attempt" as attempt from "Order_Attempt" order by 1`
    expect(charged.map((row) => ({ ...row }))).toEqual([
      { outcome: 'completed', attempt: 1 },
      { outcome: 'http_429', attempt: 1 },
    ])
    const after = target.calls
      .filter((call) => realmOf(call) === '8001' && call.at >= heldUntil)
      .map(({ at }) => at)
    const inOneSecond = after.map((at) =>
      after.filter((other) => at - other < 1_000 && other <= at),
    )
    const busiest = Math.max(...inOneSecond.map(({ length }) => length))
    const ahead = ((heldUntil - freeAt) / 1_000).toFixed(1)
    await annotate(
      `429 with Retry-After ${HELD_MS / 1_000} s for one company: ${free.length} transactions of another were complete ${ahead} s before it was over; the ${held.length} held ones made ${calls('8001')} calls in all, at most ${busiest} in a second after it, no attempt charged`,
      'figure',
    )
  }, 120_000)
})
