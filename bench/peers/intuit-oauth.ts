// The package intuit-oauth for several companies, used as its readme shows. Redis stores the token object as JSON.
// `isAccessTokenValid()` checks the token before use. `refreshUsingToken()` replaces an expired token, and the Redis
// command SET stores the new token.
import OAuthClient from 'intuit-oauth'
import { servePeer } from './serve-peer.ts'

type Token = Parameters<OAuthClient['setToken']>[0]

servePeer((settings, redis) => {
  const client = new OAuthClient({
    clientId: settings.clientId,
    clientSecret: settings.clientSecret,
    environment: 'sandbox',
    redirectUri: settings.redirectUri,
  })
  OAuthClient.tokenEndpoint = settings.tokenEndpoint

  const load = async (name: string) =>
    JSON.parse((await redis.get(`intuit-oauth:${name}`)) ?? '') as Token

  async function refresh(name: string, refreshToken = '') {
    const tokenResponse = await client.refreshUsingToken(refreshToken)
    // The token is read from the response instead of with `getToken()`. All companies share the client, so `getToken()`
    // may return the token of another company whose response arrived later.
    const token = { ...(tokenResponse.getJson() as Token), createdAt: Date.now() }
    await redis.set(`intuit-oauth:${name}`, JSON.stringify(token))
    return token
  }

  return {
    async token(name) {
      const stored = await load(name)
      client.setToken(stored)
      const token = client.isAccessTokenValid() ? stored : await refresh(name, stored.refresh_token)
      return { Name: name, Authenticator: token.access_token }
    },
    async refresh(name) {
      const { access_token } = await refresh(name, (await load(name)).refresh_token)
      return { Name: name, Authenticator: access_token }
    },
  }
})
