import { randomBytes } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { until } from '@integration-host/shared/test-support/eventually'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type Backends, type Fixture, openBackends, startFixture } from '../test-support/fixture.ts'
import { processOf } from '../test-support/process-of.ts'
import type { Step } from './step/step.ts'

const MARKER = 'business data'
const key = (id: string): string => `${id}:${randomBytes(32).toString('base64')}`
const [k1, k2] = [key('k1'), key('k2')]

const first = (step: Step<{ note: string }>) => step.complete({ note: step.initialData.note })
const second = (step: Step<{ note: string }, typeof first>) =>
  step.complete(`${step.initialData.note}, ${step.previous.data.note}`)
const noted = processOf('Noted', { steps: { first, second } })

describe('a coordinator with PAYLOAD_KEYS', () => {
  let backends: Backends
  beforeEach(async () => {
    backends = await openBackends('embedded')
  })
  afterEach(() => backends[Symbol.asyncDispose]())

  const start = (keys: string | null, dispatch: 'message' | 'inline' = 'message') =>
    startFixture(backends, {
      processes: [noted],
      dispatch,
      ...(keys !== null && { env: { PAYLOAD_KEYS: keys } }),
    })
  const files = async (): Promise<string> => {
    const names = ['ITSourceMemory.json', 'ITSourceMemory.journal']
    const contents = names.map((name) => readFile(join(backends.dataDir, name), 'utf8'))
    return (await Promise.all(contents)).join('\n')
  }
  const metric = async (host: Fixture, name: string): Promise<string | undefined> =>
    (await (await host.call('/metrics')).text())
      .split('\n')
      .find((line) => line.startsWith(name))
      ?.split(' ')[1]

  it.each(['message', 'inline'] as const)(
    'a coordinator with PAYLOAD_KEYS never stores the data of transactions in plain text (dispatch: %s)',
    async (dispatch) => {
      await using host = await start(k1, dispatch)
      await host.queue('1', { note: MARKER })
      const run = await host.reached('1', 'Completed')
      expect(run.InitialData).toEqual({ note: MARKER })
      expect(run.Items.map(({ Data }) => Data)).toEqual([{ note: MARKER }, `${MARKER}, ${MARKER}`])
      expect(await files()).not.toContain(MARKER)
      expect((await host.queue('1', { note: MARKER })).status).toBe(200)
      expect((await host.queue('1', { note: 'other' })).status).toBe(409)
    },
  )

  it.each([
    ['only another key', k2],
    ['no key', null],
  ])(
    'a run fails with payload_unreadable if the coordinator has %s, and can be resumed when the right key is set',
    async (_, keys) => {
      {
        await using host = await start(k1)
        await host.call('/processes/Noted/pause', { method: 'POST' })
        await host.queue('1', { note: MARKER })
      }
      {
        await using host = await start(keys)
        await host.call('/processes/Noted/resume', { method: 'POST' })
        const run = await host.reached('1', 'Failed')
        expect(run).toMatchObject({
          ErrorClass: 'payload_unreadable',
          Items: [{ Status: 'Failed' }],
        })
        expect(run.LastError).toContain('PAYLOAD_KEYS')
        expect(run.InitialData).toEqual({ $sealed: expect.any(String) })
        if (keys !== null)
          expect(
            Number(await metric(host, 'coordinator_payloads_unreadable_total')),
          ).toBeGreaterThan(0)
      }
      await using host = await start(k1)
      await host.call('/processes/Noted/transactions/1/resume', { method: 'POST' })
      expect((await host.reached('1', 'Completed')).InitialData).toEqual({ note: MARKER })
    },
  )

  it('a coordinator re-encrypts payloads that are in plain text or encrypted with an older key, and reports how many of them remain', async () => {
    {
      await using host = await start(null)
      await host.queue('1', { note: MARKER })
      await host.reached('1', 'Completed')
      expect(await files()).toContain(MARKER)
    }
    for (const [keys, name] of [
      [k1, 'k1'],
      [`${k2},${k1}`, 'k2'],
    ] as const) {
      await using host = await start(keys)
      const outdated = `coordinator_payloads_outdated{key="${name}",`
      await until(async () => (await metric(host, outdated)) === '0')
      await until(() => host.log.some(({ msg, keyId }) => msg === ALL_SEALED && keyId === name))
      expect(await files()).not.toContain(MARKER)
    }
    await using host = await start(k2)
    expect((await host.run('1')).Items).toMatchObject([{ Data: { note: MARKER } }, {}])
  })
})

const ALL_SEALED = 'all payloads are sealed with the active key'
