/**
 * A step sends a batch for which the gateway has no idempotency key: under `intuit` because its `bId` leaves no room for
 * a `requestid`, under `generic` because the profile has no key. Its response is lost after the batch was executed.
 */
import { fileURLToPath } from 'node:url'
import type { TransactionView } from '@integration-host/shared/contracts/transaction'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { postJson } from '@integration-host/shared/test-support/post-json'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { sandboxClient } from '../support/clients/sandbox.ts'
import { connectCompany } from '../support/clients/user-actions.ts'
import { personalities, startSystem, type System } from '../support/system.ts'

const REALM = '9341453908059889'
const PROCESSES = fileURLToPath(new URL('../support/faults/batches', import.meta.url))

describe.each(personalities)(
  'a batch of a step whose response is lost, at a provider that behaves like %s',
  (personality) => {
    let system: System
    beforeAll(async () => {
      system = await startSystem(['sandbox-provider', 'token-service', 'accounting-gateway'], {
        personality,
      })
      system.start('coordinator', { PROCESSES })
      await system.ready('coordinator')
      await connectCompany(system, REALM)
    })
    afterAll(() => system[Symbol.asyncDispose]())

    /** Runs the process until it has completed. Returns the run, and how many invoices it has created. */
    async function run(process: string): Promise<{ run: TransactionView; created: number }> {
      const sandbox = sandboxClient(system)
      const before = await sandbox.entitiesCreated(REALM)
      await sandbox.addFault({ target: 'api', calls: 1, drop: 'after' })
      const runs = `${system.url('coordinator')}/processes/${process}/transactions`
      const queued = await system.call(
        runs,
        postJson({ TransactionID: process, Realm: REALM, InitialData: null }),
      )
      expect(queued.status).toBe(202)
      const ended = await eventually(async () => {
        const view = (await (await system.call(`${runs}/${process}`)).json()) as TransactionView
        expect(view.Status).toBe('Completed')
        return view
      })
      return { run: ended, created: (await sandbox.entitiesCreated(REALM)) - before }
    }

    it('the step is in doubt, and its confirm completes it without a second batch', async () => {
      const { run: completed, created } = await run('ConfirmedBatch')
      expect(completed).toMatchObject({ InDoubt: false })
      expect(completed.Attempts).toMatchObject([{ Outcome: 'http_502' }, { Outcome: 'completed' }])
      expect(created).toBe(1)
    })

    it('a step without confirm sends the batch again, because no key protects it', async () => {
      const { run: completed, created } = await run('PlainBatch')
      expect(completed.Attempts).toMatchObject([{ Outcome: 'http_502' }, { Outcome: 'completed' }])
      expect(created).toBe(2)
    })

    it.runIf(personality === 'intuit')(
      'a short requestid of the step lets the gateway send the batch again, which is executed once',
      async () => {
        const { run: completed, created } = await run('KeyedBatch')
        expect(completed.Attempts).toMatchObject([{ Attempt: 1, Outcome: 'completed' }])
        expect(created).toBe(1)
      },
    )
  },
)
