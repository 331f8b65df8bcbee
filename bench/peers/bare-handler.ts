// The lower bound of a token request's cost: this handler reads the credential record of token-service and sends
// the record as stored, without decryption or checks.
import { servePeer } from './serve-peer.ts'

const FIELDS = ['Name', 'Authenticator', 'Expiry', 'Version'] as const

servePeer((_settings, redis) => ({
  async token(name) {
    const values = await redis.hmget(name, ...FIELDS)
    return Object.fromEntries(FIELDS.map((field, index) => [field, values[index]]))
  },
  refresh: () => Promise.reject(new Error('this peer has no provider')),
}))
