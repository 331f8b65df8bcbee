/** The page Sandbox, which only an installation with the sandbox provider has. */
import { z } from 'zod'
import { CompanyView } from './companies.ts'

export const sandboxActions = ['revoke', 'expire'] as const

const targets = ['api', 'token'] as const
const failures = ['unavailable', 'throttled', 'no_response', 'slow'] as const

export const SandboxView = z
  .object({
    Companies: z.array(CompanyView).meta({ description: 'at most 50' }),
    Faults: z.array(z.object({ Target: z.string(), Calls: z.int(), Text: z.string() })).meta({
      description: 'calls that are still going to fail',
    }),
  })
  .meta({ ref: 'Sandbox' })
export type SandboxView = z.output<typeof SandboxView>

export const SandboxFaultBody = z
  .strictObject({
    Target: z.enum(targets),
    Failure: z.enum(failures),
    Calls: z.int().min(1).max(1_000),
  })
  .meta({ ref: 'SandboxFault' })
export type SandboxFaultBody = z.output<typeof SandboxFaultBody>
