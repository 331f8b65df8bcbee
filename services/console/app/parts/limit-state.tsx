import type { CompanyLimits } from '../../src/contracts/limits.ts'
import { remaining, useSeconds } from '../clock.ts'
import { State } from './glyph.tsx'

/** Shows whether a company is in a cool-down after a 429 or has waiting calls. */
export function LimitState({ company }: { readonly company: CompanyLimits }) {
  const seconds = useSeconds()
  const { HeldUntil, Waiting } = company
  const restsFor = HeldUntil === null ? 0 : Date.parse(HeldUntil) / 1_000 - seconds
  if (restsFor > 0) return <State tone="warn" glyph="‖">{`Rests, on ${remaining(restsFor)}`}</State>
  if (Waiting > 0) return <State tone="wait">{`${Waiting} waiting`}</State>
  return <State tone="good">Free</State>
}
