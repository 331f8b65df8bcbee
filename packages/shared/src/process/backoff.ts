/** Milliseconds before try number `attempt` (from 1): doubling with full jitter, so that replicas spread. */
export function backoffMs(
  attempt: number,
  { baseMs, capMs, random }: { baseMs: number; capMs: number; random: number },
): number {
  return Math.floor(random * Math.min(capMs, baseMs * 2 ** Math.min(attempt - 1, 30)))
}
