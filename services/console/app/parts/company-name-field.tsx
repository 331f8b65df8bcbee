import { useQuery } from '@tanstack/react-query'
import { type ReactNode, useState } from 'react'
import type { CompaniesView } from '../../src/contracts/companies.ts'
import { call } from '../api.ts'
import { usePaused } from '../paused.ts'
import { type NamedCompany, nameOf } from './company.tsx'
import { FieldName } from './field-name.tsx'
import { State } from './glyph.tsx'
import { Outside } from './text.tsx'

/** The maximum number of pages of companies that are searched for a name. */
const MAX_PAGES = 5
const SHOWN = 3

const plain = (name: string): string => name.trim().toLowerCase()

/** Returns the ids of the companies with this name, in upper or lower case. */
async function realmsNamed(name: string): Promise<readonly string[]> {
  const realms: string[] = []
  let cursor: string | null = null
  for (let page = 0; page < MAX_PAGES; page += 1) {
    const query = new URLSearchParams({ q: name, ...(cursor !== null && { cursor }) })
    const { Companies, Next }: CompaniesView = await call('GET', `/companies?${query}`)
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
