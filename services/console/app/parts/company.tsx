import type { CompaniesView, CompanyView } from '../../src/contracts/companies.ts'
import { companyStateTexts } from '../../src/isomorphic/texts.ts'
import { duration, full, inList, useSeconds } from '../clock.ts'
import { useSettings } from '../settings.ts'
import { State, type StateGlyph, type Tone } from './glyph.tsx'
import { useQuery } from '@tanstack/react-query'
import { type ReactNode, useState } from 'react'
import { call } from '../api.ts'
import { usePaused } from '../reads.ts'
import { FieldName, Outside } from './elements.tsx'
import { withQuery } from '../../src/isomorphic/pages.ts'

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

/** The maximum number of pages of companies that are searched for a name. */
const MAX_PAGES = 5
const SHOWN = 3

const plain = (name: string): string => name.trim().toLowerCase()

/** Returns the ids of the companies with this name, in upper or lower case. */
async function realmsNamed(name: string): Promise<readonly string[]> {
  const realms: string[] = []
  let cursor: string | null = null
  for (let page = 0; page < MAX_PAGES; page += 1) {
    const path = withQuery('/companies', { q: name, cursor })
    const { Companies, Next }: CompaniesView = await call('GET', path)
    for (const company of Companies)
      if (plain(nameOf(company) ?? '') === plain(name)) realms.push(company.Realm)
    if (Next === null) break
    cursor = Next
  }
  return realms
}

export interface CompanyNameFieldProps {
  /** The text of the label. */
  readonly children: ReactNode
  /** The company that gets the name; `undefined` if it is not known yet. */
  readonly company?: NamedCompany
}

/**
 * The field `label` with the name of a company. Names need not be unique, so if another company has the name, the field
 * only says so.
 */
export function CompanyNameField({ children, company }: CompanyNameFieldProps) {
  const [text, setText] = useState(company?.Label ?? '')
  const name = usePaused(text.trim())
  const { data = [] } = useQuery({
    queryKey: ['companies-named', name],
    queryFn: () => realmsNamed(name),
    enabled: name !== '',
    gcTime: 0,
  })
  const others = name === '' ? [] : data.filter((realm) => realm !== company?.Realm)
  return (
    <>
      <label>
        <FieldName need="optional">{children}</FieldName>
        <input
          name="label"
          maxLength={100}
          autoComplete="off"
          placeholder={company?.CompanyName}
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
      </label>
      <output>
        {others.length > 0 && (
          <State tone="warn">
            {others.length === 1
              ? 'Another company has this name: '
              : `${others.length} other companies have this name: `}
            <Outside text={others.slice(0, SHOWN).join(', ')} />
            {others.length > SHOWN && ' …'}
          </State>
        )}
      </output>
    </>
  )
}
