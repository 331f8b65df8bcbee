import type { TargetCalls, TargetKey } from '../../run/target-calls.ts'

/**
 * Counts the calls to targets with limits. The counts are not stored, because only one OS process uses the memory
 * source, and no call continues after this process has ended.
 *
 * @param now - returns epoch ms
 */
export function createMemoryTargetCalls(now: () => number): TargetCalls {
  const targets = new Map<string, { nextCallAt: number; readonly slots: Map<string, number> }>()
  const targetOf = ({ Process, Target }: TargetKey) => {
    const key = `${Process}/${Target}` // names contain no slash
    const known = targets.get(key) ?? { nextCallAt: 0, slots: new Map<string, number>() }
    targets.set(key, known)
    return known
  }
  return {
    async reserveCall({ limits, slot, maxWaitMs, holdMs, ...key }) {
      const target = targetOf(key)
      const { intervalMs, concurrent } = limits
      const waitMs = Math.max(target.nextCallAt - now(), 0)
      if (waitMs > maxWaitMs) return { kind: 'later', waitMs }
      if (concurrent !== null) {
        for (const [name, expiresAt] of target.slots)
          if (expiresAt <= now()) target.slots.delete(name)
        if (target.slots.size >= concurrent) return { kind: 'full' }
        target.slots.set(slot, now() + waitMs + holdMs)
      }
      target.nextCallAt = now() + waitMs + intervalMs
      return { kind: 'reserved', waitMs }
    },
    async releaseCalls(key, slots) {
      for (const slot of slots) targetOf(key).slots.delete(slot)
    },
    async coolDownTarget(key, ms) {
      const target = targetOf(key)
      target.nextCallAt = Math.max(target.nextCallAt, now() + ms)
    },
  }
}
