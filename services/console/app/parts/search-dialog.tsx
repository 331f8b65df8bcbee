// oxlint-disable jsx-a11y/prefer-tag-over-role -- no elements exist for the list of a combobox with a field
import { keepPreviousData } from '@tanstack/react-query'
import { type KeyboardEvent, useEffect, useId, useRef, useState } from 'react'
import type { MissingService } from '../../src/contracts/services.ts'
import type { SearchView } from '../../src/contracts/search.ts'
import { timeOfDay } from '../clock.ts'
import { usePaused, useRead } from '../reads.ts'
import { goTo } from '../router.ts'
import { Outside } from './elements.tsx'
import { withQuery } from '../../src/isomorphic/pages.ts'

export interface SearchPage {
  readonly path: string
  readonly name: string
}

const GROUPS = [
  { kind: 'run', name: 'Runs' },
  { kind: 'object', name: 'Objects in the books' },
  { kind: 'company', name: 'Companies' },
  { kind: 'process', name: 'Processes' },
  { kind: 'page', name: 'Pages' },
] as const
const MAX_PAGES = 5

interface Option {
  readonly kind: (typeof GROUPS)[number]['kind']
  readonly text: string
  readonly detail: string
  readonly page: string
}

export interface SearchDialogProps {
  readonly pages: readonly SearchPage[]
  readonly onClose: () => void
}

/** Searches runs, objects in the books, companies, processes and pages. The arrow keys select a hit, and Enter opens it. */
export function SearchDialog({ pages, onClose }: SearchDialogProps) {
  const dialog = useRef<HTMLDialogElement>(null)
  const id = useId()
  const [text, setText] = useState('')
  const [active, setActive] = useState(0)
  const q = usePaused(text.trim())
  useEffect(() => dialog.current?.showModal(), [])
  const search = useRead<SearchView>(['search', q], withQuery('/search', { q }), {
    enabled: q !== '',
    placeholderData: keepPreviousData,
    gcTime: 0,
  })
  const options = [
    ...(q === '' ? [] : (search.data?.Hits ?? [])).map(({ Kind, Text, Detail, Page }): Option => ({
      kind: Kind,
      text: Text,
      detail: Detail,
      page: Page,
    })),
    ...pages
      .filter(({ name }) => name.toLowerCase().includes(text.trim().toLowerCase()))
      .slice(0, text.trim() === '' ? pages.length : MAX_PAGES)
      .map(({ name, path }): Option => ({ kind: 'page', text: name, detail: '', page: path })),
  ]
  const chosen = Math.min(active, options.length - 1)
  useEffect(() => {
    document.getElementById(`${id}-${chosen}`)?.scrollIntoView({ block: 'nearest' })
  }, [id, chosen])

  function open(option: Option | undefined): void {
    if (option === undefined) return
    dialog.current?.close()
    goTo(option.page)
  }
  function onKeyDown(event: KeyboardEvent): void {
    const moves: Readonly<Record<string, number>> = { ArrowDown: 1, ArrowUp: -1 }
    const move = moves[event.key]
    if (move !== undefined && options.length > 0)
      setActive((chosen + move + options.length) % options.length)
    else if (event.key === 'Enter') open(options[chosen])
    else return
    event.preventDefault()
  }
  const isSearching = q !== '' && search.isFetching
  const missing = q === '' ? [] : (search.data?.Unavailable ?? [])
  return (
    <dialog ref={dialog} className="search" aria-label="Search" onClose={onClose}>
      <input
        type="text"
        role="combobox"
        aria-label="Search runs, objects in the books, companies, processes and pages"
        aria-expanded={options.length > 0}
        aria-controls={`${id}-list`}
        aria-autocomplete="list"
        aria-activedescendant={chosen < 0 ? undefined : `${id}-${chosen}`}
        placeholder="Search runs, companies…"
        autoComplete="off"
        spellCheck={false}
        maxLength={100}
        value={text}
        onChange={(event) => {
          setText(event.target.value)
          setActive(0)
        }}
        onKeyDown={onKeyDown}
      />
      <div id={`${id}-list`} role="listbox" aria-label="Hits">
        {GROUPS.map(({ kind, name }) => {
          const ofGroup = options.filter((option) => option.kind === kind)
          if (ofGroup.length === 0) return null
          return (
            <div key={kind} role="group" aria-label={name}>
              <p className="muted" aria-hidden="true">
                {name}
              </p>
              {ofGroup.map((option) => {
                const index = options.indexOf(option)
                return (
                  <div
                    key={option.page}
                    id={`${id}-${index}`}
                    role="option"
                    tabIndex={-1}
                    aria-selected={index === chosen}
                    onPointerMove={() => setActive(index)}
                    onClick={() => open(option)}
                    onKeyDown={onKeyDown}
                  >
                    <Outside text={option.text} />
                    <span className="muted">
                      <Outside text={option.detail} />
                    </span>
                  </div>
                )
              })}
            </div>
          )
        })}
      </div>
      <output className="muted">
        {search.isError
          ? search.error.message
          : isSearching
            ? 'Searching…'
            : missing.length > 0
              ? `Not searched: ${missing.map(missingText).join('; ')}`
              : text.trim() === ''
                ? 'A run by the beginning of its id, an object by its number, a company by its name or id.'
                : `${options.length} ${options.length === 1 ? 'hit' : 'hits'}`}
      </output>
    </dialog>
  )
}

const missingText = ({ Detail, Since }: MissingService): string =>
  Since === null ? Detail : `${Detail} since ${timeOfDay(Since)}`
