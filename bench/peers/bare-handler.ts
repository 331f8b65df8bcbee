// The floor: token-service's own record, read and answered as it lies there. It opens and checks nothing.
import { servePeer } from './serve-peer.ts'

const FIELDS = ['Name', 'Authenticator', 'Expiry', 'Version'] as const

servePeer((_settings, redis) => ({
  async token(name) {
    const values = await redis.hmget(name, ...FIELDS)
    return Object.fromEntries(FIELDS.map((field, index) => [field, values[index]]))
  },
  refresh: () => Promise.reject(new Error('this peer has no provider')),
}))
