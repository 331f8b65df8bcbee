import {
  FLOW_SECONDS,
  type SignInFlow,
  type SignInFlowStore,
} from '../../session/sign-in-flow-store.ts'

/** The maximum number of flows. A further flow removes the oldest one, because any client can begin flows. */
const MAX_FLOWS = 10_000

/** Stores, in the memory of this process, the sign-ins that have begun. `now` returns milliseconds. */
export function createMemorySignInFlowStore(now: () => number): SignInFlowStore {
  const flows = new Map<string, { readonly flow: SignInFlow; readonly expiresAt: number }>()
  return {
    async put(digest, flow) {
      flows.set(digest, { flow, expiresAt: now() + FLOW_SECONDS * 1_000 })
      const [oldest] = flows.keys()
      if (flows.size > MAX_FLOWS && oldest !== undefined) flows.delete(oldest)
    },
    async take(digest) {
      const found = flows.get(digest)
      flows.delete(digest)
      return found !== undefined && now() < found.expiresAt ? found.flow : null
    },
  }
}
