import { describe, expect, it } from 'vitest'
import { problem, useFakeService } from '../../test-support/fake-service.ts'
import { expectWrongUsage, run } from '../../test-support/run.ts'

const orders = {
  Process: 'OrderProcess',
  Steps: ['order', 'report'],
  Paused: true,
  PausedAt: '2026-11-23T08:00:00.000Z',
  PausedBy: 'ada@example.com',
  Reason: 'migration',
  Consuming: false,
  Dispatch: 'message',
}
const webhooks = {
  ...orders,
  Process: 'Webhook',
  Steps: ['deliver'],
  Paused: false,
  PausedAt: null,
  PausedBy: null,
  Reason: null,
  Consuming: true,
}

const service = useFakeService({
  'GET /processes': () => ({ body: { items: [orders, webhooks] } }),
  'POST /processes/OrderProcess/pause': () => ({ body: orders }),
  'POST /processes/OrderProcess/resume': () => ({ body: { ...orders, Paused: false } }),
  'POST /processes/Unknown/pause': () => problem(404, 'process_not_found'),
})

const cli = (...args: readonly string[]) =>
  run(['processes', ...args], { env: { COORDINATOR_URL: service.url } })

describe('the commands `processes`', () => {
  it('`processes list` prints for each paused process the time, the caller and the reason of the pause', async () => {
    const { code, out } = await cli('list')
    expect(code).toBe(0)
    expect(out.split('\n').map((line) => line.split(/ {2,}/))).toEqual([
      ['PROCESS', 'STATE', 'STEPS', 'PAUSED AT', 'BY', 'REASON'],
      ['OrderProcess', 'PAUSED', 'order, report', orders.PausedAt, 'ada@example.com', 'migration'],
      ['Webhook', 'RUNNING', 'deliver'],
      [''],
    ])
    expect((await cli('list', '--json')).json).toEqual([orders, webhooks])
  })

  it('`processes pause` and `processes resume` send the text of --reason', async () => {
    const paused = await cli('pause', 'OrderProcess', '--reason', 'migration')
    expect([paused.code, paused.out]).toEqual([0, 'OrderProcess is paused.\n'])
    expect(service.requests.at(-1)?.body).toEqual({ Reason: 'migration' })
    expect((await cli('resume', 'OrderProcess')).out).toBe('OrderProcess runs again.\n')
    expect((await cli('pause', 'OrderProcess', '--json')).json).toEqual([orders])
    expect((await cli('pause', 'Unknown')).code).toBe(3)
  })

  it.each([
    [['pause'], 'The name of a process is needed'],
    [['pause', 'A', 'B'], "Unexpected argument 'B'"],
    [['resume', 'A', '--reason', ''], '--reason must not be empty'],
    [['list', 'A'], "Unexpected argument 'A'"],
  ])(
    '`processes` rejects the arguments %j as wrong usage and sends no request',
    async (args, message) => {
      expectWrongUsage(await cli(...args), message, service.requests)
    },
  )
})
