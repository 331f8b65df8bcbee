// The package openid-client with a typical token store, which the users of the package have to write themselves. Redis
// stores the token response and its expiry as JSON. `refreshTokenGrant()` replaces an expired token, and the Redis
// command SET stores the new token.
import {
  allowInsecureRequests,
  ClientSecretBasic,
  Configuration,
  refreshTokenGrant,
} from 'openid-client'
import { servePeer } from './serve-peer.ts'

interface StoredToken {
  readonly access_token: string
  readonly refresh_token: string
  readonly expires_at: number
}

servePeer((settings, redis) => {
  const provider = new URL(settings.tokenEndpoint)
  const configuration = new Configuration(
    { issuer: `${provider.origin}/op/v1`, token_endpoint: provider.href },
    settings.clientId,
    undefined,
    ClientSecretBasic(settings.clientSecret),
  )
  allowInsecureRequests(configuration)

  const load = async (name: string) =>
    JSON.parse((await redis.get(`openid-client:${name}`)) ?? '') as StoredToken

  async function refresh(name: string, { refresh_token }: StoredToken): Promise<StoredToken> {
    const tokens = await refreshTokenGrant(configuration, refresh_token)
    const token = {
      refresh_token,
      ...tokens,
      expires_at: Date.now() + (tokens.expiresIn() ?? 0) * 1_000,
    }
    await redis.set(`openid-client:${name}`, JSON.stringify(token))
    return token
  }

  return {
    async token(name) {
      const stored = await load(name)
      const token = Date.now() < stored.expires_at ? stored : await refresh(name, stored)
      return { Name: name, Authenticator: token.access_token }
    },
    async refresh(name) {
      const { access_token } = await refresh(name, await load(name))
      return { Name: name, Authenticator: access_token }
    },
  }
})
