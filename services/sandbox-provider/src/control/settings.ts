import { z } from 'zod'
import { redirectUriRules } from '../authorization/authorization-request.ts'
import { personalities, type PersonalityName, personalityNames } from './personalities.ts'

/**
 * The settings of the provider's behaviour, one for each property in which providers differ. A personality, such as
 * `intuit`, is a named set of values for all settings.
 */
export const Behaviour = z.strictObject({
  accessTokenSeconds: z.int().min(1).max(86_400).meta({ description: 'expires_in of new tokens' }),
  refreshTokenSeconds: z.int().min(1).max(157_680_000).meta({
    description:
      'x_refresh_token_expires_in of a new refresh token value; counts down while the value stays the same',
  }),
  grantSeconds: z.int().min(1).max(315_360_000).meta({
    description:
      'how long a grant lasts from the consent, however often it is refreshed: x_refresh_token_hard_expires_in',
  }),
  rotation: z.enum(['always', 'daily', 'never']).meta({
    description: 'when a refresh returns a new refresh token; daily: 24 h after the last new one',
  }),
  graceSeconds: z
    .int()
    .min(0)
    .max(8_640_000)
    .meta({ description: 'how long a rotated refresh token is still accepted' }),
  revokeOnReuse: z.boolean().meta({
    description: 'a rotated refresh token that is used after its grace period ends the whole grant',
  }),
  latencyMs: z
    .int()
    .min(0)
    .max(120_000)
    .meta({ description: 'how long a response is delayed after its effect' }),
  visibleAfterMs: z.int().min(0).max(86_400_000).meta({
    description:
      'how long queries do not return a new object; reads by id and change data return it at once',
  }),
  playsBackRequestIds: z.boolean().meta({
    description:
      'whether a POST with a known requestid returns the first response; false: it is executed again',
  }),
  pkce: z.boolean().meta({
    description: 'whether S256 is advertised and required; false: PKCE parameters are ignored',
  }),
  nonce: z.boolean().meta({
    description: 'whether an id token repeats the nonce, and claims_supported lists it',
  }),
  responseIssuer: z.boolean().meta({
    description: 'whether the authorization response has iss (RFC 9207), and discovery says so',
  }),
  realmIdNeedsScope: z.boolean().meta({
    description:
      'whether the company is named (realmId, realmid) only for an accounting or payment scope',
  }),
  redirectUris: z
    .enum(Object.keys(redirectUriRules) as (keyof typeof redirectUriRules)[])
    .meta({ description: 'which redirect URIs can be registered' }),
  clientSecretPost: z.boolean().meta({
    description: 'whether the token endpoint advertises and accepts client_secret_post',
  }),
  revocationBody: z.enum(['json', 'form']).meta({
    description:
      'json: {"token": …}, an invalid token is 400 with an empty body; form: RFC 7009, an invalid token is 200',
  }),
  discoveryNamesAccountingUrl: z
    .boolean()
    .meta({ description: 'whether the discovery document has accounting_url' }),
})
export type Behaviour = z.output<typeof Behaviour>

const personality = z.enum(personalityNames).meta({
  description:
    'sets all settings to the values of this personality; other settings in the same request override them',
})

export const SandboxSettings = z
  .strictObject({ personality, ...Behaviour.shape })
  .meta({ ref: 'Settings' })
export type SandboxSettings = z.output<typeof SandboxSettings>

export function createSettings(startedAs: PersonalityName = 'intuit') {
  const settingsOf = (name: PersonalityName): SandboxSettings => ({
    personality: name,
    ...personalities[name].behaviour,
  })
  let settings = settingsOf(startedAs)
  return {
    current: () => settings,
    change(part: Partial<SandboxSettings>): SandboxSettings {
      const base = part.personality === undefined ? settings : settingsOf(part.personality)
      settings = { ...base, ...part }
      return settings
    },
    /** Restores the settings with which the sandbox provider was started. */
    reset: () => void (settings = settingsOf(startedAs)),
  }
}
