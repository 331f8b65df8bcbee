/** The built-in profiles by their names in the setting `PROVIDER_PROFILE`. */
import { z } from 'zod'
import { generic } from './generic.ts'
import { intuit } from './intuit.ts'
import type { ProviderProfile } from './provider-profile.ts'

const profiles = {
  intuit,
  generic,
  /** The first release used this name for the profile `generic`. */
  unlimited: generic,
} as const satisfies Readonly<Record<string, ProviderProfile>>

type ProfileName = keyof typeof profiles

/** Parses the setting `PROVIDER_PROFILE`, which has the name of a profile, to the profile with this name. */
export const providerProfile = () =>
  z
    .enum(Object.keys(profiles) as ProfileName[])
    .default('intuit')
    .transform((name): ProviderProfile => profiles[name])
