import { z } from 'zod'

export const SandboxSettings = z.strictObject({
  accessTokenSeconds: z.int().min(1).max(86_400).meta({ description: 'expires_in of new tokens' }),
  rotation: z.enum(['always', 'daily', 'never']).meta({
    description: 'when a refresh answers a new refresh token; daily: 24 h after the last new one',
  }),
  graceSeconds: z
    .int()
    .min(0)
    .max(8_640_000)
    .meta({ description: 'how long a rotated refresh token is still taken' }),
  revokeOnReuse: z.boolean().meta({
    description: 'a rotated refresh token that comes after its grace ends the whole grant',
  }),
  latencyMs: z
    .int()
    .min(0)
    .max(120_000)
    .meta({ description: 'how long an answer is held back after its effect' }),
  pkce: z.boolean().meta({ description: 'whether S256 is advertised and verified' }),
})
export type SandboxSettings = z.output<typeof SandboxSettings>

export interface SettingsControl {
  current(): SandboxSettings
  change(part: Partial<SandboxSettings>): SandboxSettings
  reset(): void
}

// Access tokens of an hour and a day of grace are Intuit's; rotating each time is the harder half of its "about daily".
const DEFAULTS: SandboxSettings = {
  accessTokenSeconds: 3_600,
  rotation: 'always',
  graceSeconds: 86_400,
  revokeOnReuse: false,
  latencyMs: 0,
  pkce: true,
}

export function createSettings(): SettingsControl {
  let settings = DEFAULTS
  return {
    current: () => settings,
    change: (part) => (settings = { ...settings, ...part }),
    reset: () => void (settings = DEFAULTS),
  }
}
