import { describeSessionStore } from '../../session/session-store.contract.ts'
import { createMemorySessionStore } from './stores.ts'

describeSessionStore('in memory', async () => ({
  store: createMemorySessionStore(Date.now),
  async [Symbol.asyncDispose]() {},
}))
