import { z } from 'zod'
import { Behaviour } from './behaviour.ts'
import { personalities, type PersonalityName, personalityNames } from './personalities.ts'

const personality = z.enum(personalityNames).meta({
  description:
    'sets all settings to the values of this personality; other settings in the same request override them',
})

export const SandboxSettings = z
  .strictObject({ personality, ...Behaviour.shape })
  .meta({ ref: 'Settings' })
export type SandboxSettings = z.output<typeof SandboxSettings>

export interface SettingsControl {
  current(): SandboxSettings
  change(part: Partial<SandboxSettings>): SandboxSettings
  /** Restores the settings with which the sandbox provider was started. */
  reset(): void
}

export function createSettings(startedAs: PersonalityName = 'intuit'): SettingsControl {
  const settingsOf = (name: PersonalityName): SandboxSettings => ({
    personality: name,
    ...personalities[name].behaviour,
  })
  let settings = settingsOf(startedAs)
  return {
    current: () => settings,
    change(part) {
      const base = part.personality === undefined ? settings : settingsOf(part.personality)
      settings = { ...base, ...part }
      return settings
    },
    reset: () => void (settings = settingsOf(startedAs)),
  }
}
