// intuit-oauth as its readme shows it for several companies: the token object in Redis as JSON,
// `isAccessTokenValid()` before use, `refreshUsingToken()` and SET if it has expired.
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
    // Not `getToken()`: the client is shared, and the response for another company may have arrived in between.
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
