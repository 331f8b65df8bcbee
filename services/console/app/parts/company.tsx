import type { CompanyView } from '../../src/contracts/companies.ts'
import { companyStateTexts } from '../../src/isomorphic/texts.ts'
import { duration, full, inList, useSeconds } from '../clock.ts'
import { useSettings } from '../settings.ts'
import { State, type StateGlyph, type Tone } from './glyph.tsx'

/** The states of companies in the order of their urgency. */
export const COMPANY_STATES: Readonly<
  Record<CompanyView['State'], { readonly tone: Tone; readonly glyph: StateGlyph }>
> = {
  must_reconnect: { tone: 'bad', glyph: '✕' },
  failing: { tone: 'warn', glyph: '↻' },
  expiring: { tone: 'warn', glyph: '!' },
  active: { tone: 'good', glyph: '✓' },
}

/** Returns the words for a state as a text of its own, such as `Must be reconnected`. */
export function companyStateText(state: CompanyView['State']): string {
  const text = companyStateTexts[state]
  return text.charAt(0).toUpperCase() + text.slice(1)
}

export function CompanyState({ state }: { readonly state: CompanyView['State'] }) {
  const { tone, glyph } = COMPANY_STATES[state]
  return (
    <State tone={tone} glyph={glyph}>
      {companyStateText(state)}
    </State>
  )
}

export type NamedCompany = Pick<CompanyView, 'Realm' | 'Label' | 'CompanyName'>

/** The label of a company, or else its name at the provider; `undefined` if it has neither. */
export const nameOf = ({ Label, CompanyName }: Omit<NamedCompany, 'Realm'>): string | undefined =>
  Label ?? CompanyName

/** The name by which people know a company: its label, its name at the provider, or else its id. */
export const companyName = (company: NamedCompany): string => nameOf(company) ?? company.Realm

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
