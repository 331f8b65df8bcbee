// This handler reads the credential record of token-service and sends the record as stored, without decryption or
// checks. Its cost is the lower bound for the cost of a token request.
import { servePeer } from './serve-peer.ts'

const FIELDS = ['Name', 'Authenticator', 'Expiry', 'Version'] as const

servePeer((_settings, redis) => ({
  async token(name) {
    const values = await redis.hmget(name, ...FIELDS)
    return Object.fromEntries(FIELDS.map((field, index) => [field, values[index]]))
  },
  refresh: () => Promise.reject(new Error('this peer has no provider')),
}))
