import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { casePath, casesOf, fuzz, type Target, type TargetName, targetNames } from './fuzz.ts'
import { mutated } from './mutate.ts'
import { gatewayRequests } from './targets/gateway-requests.ts'
import { gatewayResponses } from './targets/gateway-responses.ts'
import { stepMessages } from './targets/step-messages.ts'
import { callbacks, imports } from './targets/token-service.ts'

/** In `npm run test:all` all targets together get 30 seconds. `npm run test:fuzz` sets a longer time. */
const { FUZZ_SEED = '1', FUZZ_SECONDS = '30', FUZZ_TARGET, FUZZ_SAVE } = process.env

const start: Record<TargetName, () => Promise<Target>> = {
  'gateway-requests': gatewayRequests,
  'gateway-responses': gatewayResponses,
  callbacks,
  imports,
  'step-messages': stepMessages,
}
const chosen = targetNames.filter((name) => FUZZ_TARGET === undefined || name === FUZZ_TARGET)
const seconds = Number(FUZZ_SECONDS) / chosen.length

describe.each(chosen)('fuzzing the target %s', (name) => {
  let target: Target
  const opened = new AsyncDisposableStack()
  beforeAll(async () => {
    target = opened.use(await start[name]())
  })
  afterAll(() => opened.disposeAsync())

  it.each(casesOf(name).map(([file, input]) => [file, input] as const))(
    `the fuzz target ${name} conforms to its specification for the stored input %s`,
    async (_, input) => {
      await expect(target.check(input)).resolves.toBeUndefined()
    },
  )

  it(
    `the fuzz target ${name} conforms to its specification for mutated inputs`,
    async () => {
      const seed = Number(FUZZ_SEED)
      if (FUZZ_SAVE !== undefined) {
        const path = casePath(name, FUZZ_SAVE)
        mkdirSync(dirname(path), { recursive: true })
        writeFileSync(path, mutated(target.inputs, seed))
      }
      const count = await fuzz(name, target, { seed, seconds })
      console.log(`fuzz target ${name}: ${count} inputs passed, seeds from ${seed} on`)
      expect(count).toBeGreaterThan(0)
    },
    (seconds + 120) * 1_000,
  )
})
