import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { connectCompany } from '../support/clients/user-actions.ts'
import { sandboxClient } from '../support/clients/sandbox.ts'
import { personalities, startSystem, type System } from '../support/system.ts'

const REALM = '9341453908059889'

describe.each(personalities)(
  'a POST request whose response is lost, at a provider that behaves like %s',
  (personality) => {
    let system: System

    beforeAll(async () => {
      system = await startSystem(['sandbox-provider', 'token-service', 'accounting-gateway'], {
        personality,
      })
      await connectCompany(system, REALM)
    })
    afterAll(() => system[Symbol.asyncDispose]())

    it.each([
      ['lost', [{ drop: 'after' }]],
      ['lost, and the repeated request gets a 502', [{ drop: 'after' }, { status: 502 }]],
    ])(
      'a POST request creates one entity at the accounting API if its response is %s',
      async (name, faults) => {
        const sandbox = sandboxClient(system)
        for (const fault of faults) await sandbox.addFault({ target: 'api', calls: 1, ...fault })
        const before = await sandbox.entitiesCreated(REALM)
        const response = await system.call(
          `${system.url('accounting-gateway')}/v3/company/${REALM}/customer?minorversion=75`,
          {
            method: 'POST',
            headers: { 'Content-Type': 'application/json', Accept: 'application/json' },
            body: JSON.stringify({ DisplayName: `${name} ${personality}` }),
          },
        )
        await response.text()
        // Intuit recognises a repeated `requestid`, so the gateway repeats the POST. Another provider might create a
        // second entity, so the gateway must not repeat the POST there.
        expect(response.status).toBe(personality === 'intuit' ? 200 : 502)
        expect(response.headers.has('X-RequestId')).toBe(personality === 'intuit')
        expect(await sandbox.entitiesCreated(REALM)).toBe(before + 1)
        await sandbox.clearFaults()
      },
    )
  },
)
