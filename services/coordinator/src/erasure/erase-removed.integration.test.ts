import { mkdir, writeFile } from 'node:fs/promises'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import type { ActionPage } from '@integration-host/shared/contracts/operations'
import type { MessageBus } from '@integration-host/shared/messaging/message-bus'
import { eventually, until } from '@integration-host/shared/test-support/eventually'
import { IntegrationError } from '@integration-host/shared/errors'
import { describe, expect, it } from 'vitest'
import { publishCredentialEvent } from '../../test-support/credential-event.ts'
import { type Fixture, onBackends } from '../../test-support/fixture.ts'
import { createChangeCursors } from '../change-feed/change-cursors.ts'

const transactions = '/processes/OrderProcess/transactions'

describe('the removal of a credential', () => {
  const opened = onBackends('real')

  const removed = (bus: MessageBus, realm: string, erase?: boolean): Promise<void> =>
    publishCredentialEvent(bus, 'removed', {
      Name: `ACC-${realm}`,
      Version: 1,
      revoked: true,
      ...(erase !== undefined && { erase }),
    })
  /**
   * Queues runs and ends them at once: the runs do not start, because their process is paused, and are then cancelled.
   */
  const cancelled = async (host: Fixture, realm: string, ...ids: string[]): Promise<void> => {
    await host.call('/processes/OrderProcess/pause', { method: 'POST' })
    for (const id of ids) {
      await host.queue(id, `data of ${id}`, realm)
      await host.call(`${transactions}/${id}/cancel`, { method: 'POST' })
    }
  }
  const isErased = async (host: Fixture, id: string): Promise<boolean> =>
    (await host.run(id)).InitialData === null

  it('the event of a removed credential can request that the ended runs of the company and their files are erased', async () => {
    await using host = await opened.start()
    await cancelled(host, '1', 'e1')
    await cancelled(host, '2', 'e2')
    await cancelled(host, '3', 'e3')
    for (const realm of ['1', '2']) await createChangeCursors(host.source).beginCursor(realm)
    await host.queue('e4', 'data of e4', '1')
    const folder = join(opened.backends().dataDir, 'OrderCSV')
    await mkdir(folder)
    const file = join(folder, 'Order_e1.0.csv')
    await writeFile(file, 'data of e1')
    await removed(host.bus, '2')
    await removed(host.bus, '3', false)
    await removed(host.bus, '1', true)
    await until(() => isErased(host, 'e1'))
    await until(() => !existsSync(file))
    await eventually(() =>
      expect(host.log.find(({ notEnded }) => notEnded === 1)).toMatchObject({
        credential: 'ACC-1',
        erased: 1,
        files: 1,
      }),
    )
    expect(await createChangeCursors(host.source).changeCursor('1')).toBeNull()
    expect(await createChangeCursors(host.source).changeCursor('2')).not.toBeNull()
    for (const id of ['e2', 'e3', 'e4'])
      expect((await host.run(id)).InitialData).toBe(`data of ${id}`)
    const { items } = (await (await host.call('/actions?id=e1')).json()) as ActionPage
    expect(items[0]).toMatchObject({
      Action: 'erase',
      KeyID: 'coordinator:credential-removed',
      Reason: 'ACC-1 was removed with erase=true',
    })
  })

  it('a coordinator processes a removal of a credential that was published before the coordinator started', async () => {
    {
      await using host = await opened.start()
      await cancelled(host, '1', 'e1')
    }
    {
      await using bus = await opened.backends().openBus()
      await bus.ready()
      await removed(bus, '1', true)
    }
    await using host = await opened.start()
    await until(() => isErased(host, 'e1'))
  })

  it('the removal of a credential is processed again by the same coordinator after a store failure, and by another after a shutdown', async () => {
    const failing = async () => {
      throw new IntegrationError('store_unavailable', 'a test')
    }
    {
      await using host = await opened.start({
        wrapSource: (source) => ({ ...source, erase: failing }),
      })
      await cancelled(host, '1', 'e1')
      await removed(host.bus, '1', true)
    }
    let calls = 0
    await using host = await opened.start({
      wrapSource: (source) => ({
        ...source,
        erase: (...args) => ((calls += 1) <= 2 ? failing() : source.erase(...args)),
      }),
    })
    await until(() => isErased(host, 'e1'))
    expect(calls).toBeGreaterThan(2)
  })
})
