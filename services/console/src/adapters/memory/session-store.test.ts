import { describeSessionStore } from '../../session/session-store.contract.ts'
import { createMemorySessionStore } from './session-store.ts'

describeSessionStore('in memory', async () => ({
  store: createMemorySessionStore(Date.now),
  async [Symbol.asyncDispose]() {},
}))
