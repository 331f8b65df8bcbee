import type { CompanyView } from '../../src/contracts/companies.ts'
import type { CompanyStateTexts } from '../../src/contracts/company-states.ts'
import type { FaultTexts } from '../../src/contracts/fault-texts.ts'
import { duration, full, inList, useSeconds } from '../clock.ts'
import { useSettings } from '../settings.ts'
import { State, type StateGlyph, type Tone } from './glyph.tsx'

/** The states of companies in the order of their urgency. */
export const COMPANY_STATES: {
  readonly [State in CompanyView['State']]: {
    readonly tone: Tone
    readonly glyph: StateGlyph
    readonly text: Capitalize<CompanyStateTexts[State]>
  }
} = {
  must_reconnect: { tone: 'bad', glyph: '✕', text: 'Must be reconnected' },
  failing: { tone: 'warn', glyph: '↻', text: 'Cannot be refreshed now' },
  expiring: { tone: 'warn', glyph: '!', text: 'Ends soon' },
  active: { tone: 'good', glyph: '✓', text: 'Active' },
}

export function CompanyState({ state }: { readonly state: CompanyView['State'] }) {
  const { tone, glyph, text } = COMPANY_STATES[state]
  return (
    <State tone={tone} glyph={glyph}>
      {text}
    </State>
  )
}

const FAULT_TEXTS: FaultTexts = {
  used_elsewhere: 'disconnected by its owner, or used by another program',
}

/** Returns what the class of a fault means, if its name alone would mislead; otherwise its name. */
export const faultText = (code: string): string =>
  new Map<string, string>(Object.entries(FAULT_TEXTS)).get(code) ?? code

export type NamedCompany = Pick<CompanyView, 'Realm' | 'Label'>

/** The name by which people know a company: its label, or else its id. */
export const companyName = ({ Label, Realm }: NamedCompany): string => Label ?? Realm

/** Shows the time that remains until `time`. Shows `past` after that time. */
export function Until({ time, past }: { readonly time: string; readonly past: string }) {
  const seconds = Date.parse(time) / 1_000 - useSeconds()
  const { times } = useSettings()
  const text = times === 'relative' ? `in ${duration(seconds)}` : inList(time)
  return (
    <time dateTime={time} title={full(time)}>
      {seconds <= 0 ? past : text}
    </time>
  )
}

/** Shows when the grant of a company ends. A grant that cannot be refreshed has no end to wait for. */
export function GrantEnd({ company }: { readonly company: CompanyView }) {
  if (company.State === 'must_reconnect') return <>—</>
  const ends = [company.HardExpiry, company.IdleExpiry].filter((time) => time !== undefined)
  const [first] = ends.toSorted((one, other) => one.localeCompare(other))
  return first === undefined ? <>—</> : <Until time={first} past="ended" />
}
