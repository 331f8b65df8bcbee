import { keyName } from '../../src/isomorphic/texts.ts'
import { keepPreviousData, useMutation, useQueryClient } from '@tanstack/react-query'
import { type FormEvent, useDeferredValue, useId, useRef, useState } from 'react'
import type { CompaniesView } from '../../src/contracts/companies.ts'
import type { ProcessesView } from '../../src/contracts/processes.ts'
import type { QueuedRun } from '../../src/contracts/runs.ts'
import { call, hasEnded, Problem } from '../api.ts'
import { sizeText } from '../clock.ts'
import { readAllAgain } from '../live.ts'
import { usePaused, useRead } from '../reads.ts'
import { typedData } from '../queued-data.ts'
import { visible } from '../visible.ts'
import { reasonOf } from './action-button.tsx'
import { BlockedNotice, useBlocked } from './blockable-button.tsx'
import { nameOf } from './company.tsx'
import { Commas, FieldName, Outside } from './elements.tsx'
import { QueueConflict, QueueProblem, QueueResult } from './queue-result.tsx'
import { withQuery } from '../../src/isomorphic/pages.ts'

export interface Draft {
  readonly process: string
  readonly id: string
  readonly realm: string
  readonly tags: Readonly<Record<string, string>> | null
  readonly data: string
}

export interface QueueFormProps {
  readonly draft: Draft
  readonly onClose: () => void
}

/** Shows the fields of one transaction and, after it was sent, the result. */
export function QueueForm({ draft, onClose }: QueueFormProps) {
  const [fields, setFields] = useState(draft)
  const [asText, setAsText] = useState(false)
  const { process, id, realm, tags } = fields
  const processes = useProcesses(process, (first) =>
    setFields((before) => ({ ...before, process: first })),
  )
  const queries = useQueryClient()
  const isBlocked = useBlocked() !== undefined
  // A repetition after a lost response has the same key, so that the transaction is queued only once. After a change of
  // a field, the request gets a new key.
  const key = useRef('')
  const change = (changed: Partial<Draft>): void =>
    setFields((before) => ({ ...before, ...changed }))
  const queue = useMutation({
    mutationFn: async (form: FormData) => {
      const { json } = typedData(fields.data, id, asText)
      const body = {
        Process: process,
        TransactionID: id,
        ...(realm !== '' && { Realm: realm }),
        ...(tags !== null && { Tags: tags }),
        Data: json,
        ...reasonOf(form),
      }
      key.current ||= crypto.randomUUID()
      return call<QueuedRun>('POST', '/queue', body, key.current)
    },
    onSettled: (_, error) => {
      if (hasEnded(error)) key.current = ''
      return readAllAgain(queries)
    },
  })
  // The check of a long text is deferred, so that it does not delay the next key press.
  const { fault, bytes, isTooLong } = typedData(useDeferredValue(fields.data), id, asText)
  const data = useId()
  const submit = (event: FormEvent<HTMLFormElement>): void => {
    event.preventDefault()
    if (!queue.isPending && !isBlocked && !isTooLong)
      queue.mutate(new FormData(event.currentTarget))
  }
  if (queue.data !== undefined)
    return (
      <QueueResult
        process={process}
        id={id}
        run={queue.data}
        isPaused={processes.paused !== undefined}
        onAnother={() => queue.reset()}
        onClose={onClose}
      />
    )
  const isConflict = queue.error instanceof Problem && queue.error.code === 'transaction_conflict'
  return (
    <form
      onSubmit={submit}
      onChange={() => {
        key.current = ''
      }}
    >
      <div className="pair">
        <label>
          Process
          <select
            required
            value={process}
            onChange={({ currentTarget }) => change({ process: currentTarget.value })}
          >
            {processes.names.map((name) => (
              <option key={name} value={name}>
                {visible(name)}
              </option>
            ))}
          </select>
        </label>
        <label>
          <FieldName need="required">Id</FieldName>
          <input
            required
            maxLength={128}
            autoComplete="off"
            spellCheck={false}
            value={id}
            onChange={({ currentTarget }) => change({ id: currentTarget.value })}
          />
        </label>
      </div>
      {processes.paused !== undefined && (
        <p className="muted">
          The process is paused{processes.paused}. Its runs wait until it is resumed.
        </p>
      )}
      <Company realm={realm} onChange={(next) => change({ realm: next })} />
      {tags !== null && Object.keys(tags).length > 0 && (
        <p className="muted">
          It gets the same tags:{' '}
          <Commas>
            {Object.entries(tags).map(([name, value]) => (
              <Outside key={name} text={`${name}=${value}`} />
            ))}
          </Commas>
        </p>
      )}
      <label>
        <FieldName need="optional">Initial data</FieldName>
        <textarea
          rows={8}
          spellCheck={false}
          autoComplete="off"
          value={fields.data}
          aria-describedby={data}
          aria-invalid={(fault !== null && !asText) || isTooLong}
          onChange={({ currentTarget }) => change({ data: currentTarget.value })}
        />
      </label>
      <p id={data} className={isTooLong ? 'tone-bad' : 'muted'}>
        {isTooLong
          ? `This has ${sizeText(bytes)}. A transaction has at most 256 KB.`
          : fields.data.trim() === ''
            ? 'Any JSON. Without data, the run gets its id as a text.'
            : fault === null
              ? `JSON, ${sizeText(bytes)}.`
              : `Not JSON: line ${fault.line}, column ${fault.column} needs ${fault.expected}.`}
      </p>
      {fault !== null && (
        <label className="choice">
          <input
            type="checkbox"
            required
            checked={asText}
            onChange={({ currentTarget }) => setAsText(currentTarget.checked)}
          />
          It is a text: queue it as a JSON string
        </label>
      )}
      <label>
        <FieldName need="optional">Reason</FieldName>
        <input name="reason" maxLength={500} autoComplete="off" />
      </label>
      {queue.error !== null &&
        (isConflict ? (
          <QueueConflict process={process} id={id} realm={realm} tags={tags} />
        ) : (
          <QueueProblem error={queue.error} />
        ))}
      <BlockedNotice />
      <div className="buttons">
        <button type="button" onClick={onClose}>
          Back
        </button>
        <button
          type="submit"
          className="primary"
          aria-disabled={queue.isPending || isBlocked || isTooLong}
        >
          {queue.isPending ? 'One moment…' : 'Queue'}
        </button>
      </div>
    </form>
  )
}

interface ProcessChoice {
  readonly names: readonly string[]
  /** Says who paused the chosen process, and why; `undefined` if the process is not paused. */
  readonly paused: string | undefined
}

/**
 * Returns the processes whose transactions a person can queue. If no process is chosen, `onFirst` is called with the
 * first one.
 */
function useProcesses(chosen: string, onFirst: (first: string) => void): ProcessChoice {
  const processes = useRead<ProcessesView>(['processes'], '/processes')
  const all = processes.data?.Processes.filter(({ BuiltIn }) => !BuiltIn) ?? []
  const [first] = all
  if (chosen === '' && first !== undefined) onFirst(first.Process)
  const found = all.find(({ Process }) => Process === chosen)
  const { PausedBy: by, Reason: reason } = found ?? { PausedBy: null, Reason: null }
  return {
    names: [...new Set([...all.map(({ Process }) => Process), chosen])].filter(Boolean),
    paused:
      found?.Paused !== true
        ? undefined
        : `${by === null ? '' : ` by ${visible(keyName(by))}`}${reason === null ? '' : `: “${visible(reason)}”`}`,
  }
}

interface CompanyProps {
  readonly realm: string
  readonly onChange: (realm: string) => void
}

/**
 * The field for the company of the run. The browser suggests companies whose name or id contains the typed text. The
 * server rejects a company that does not exist. The field says so before.
 */
function Company({ realm, onChange }: CompanyProps) {
  const id = useId()
  const hint = useId()
  const q = usePaused(realm)
  const path = withQuery('/companies', { q: q || undefined })
  const companies = useRead<CompaniesView>(['company-suggestions', q], path, {
    placeholderData: keepPreviousData,
    gcTime: 0,
  })
  const known = companies.data?.Companies.find(({ Realm }) => Realm === realm)
  const isSearched = q === realm && companies.data !== undefined && !companies.isPlaceholderData
  // The list has at most 100 companies. If there are more, the company may be one of them.
  const isUnknown =
    realm !== '' && known === undefined && isSearched && companies.data.Next === null
  return (
    <div>
      <label>
        <span>
          <FieldName need="optional">Id of the company</FieldName>
          {known !== undefined && nameOf(known) !== undefined && (
            <>
              {' '}
              <Outside text={nameOf(known) ?? ''} />
            </>
          )}
        </span>
        <input
          list={id}
          maxLength={64}
          pattern="[A-Za-z0-9_\-]+"
          title="The id of a company: letters, digits, _ and -"
          autoComplete="off"
          spellCheck={false}
          value={realm}
          aria-describedby={hint}
          aria-invalid={isUnknown}
          onChange={({ currentTarget }) => onChange(currentTarget.value.trim())}
        />
        <datalist id={id}>
          {companies.data?.Companies.map((company) => (
            <option key={company.Realm} value={company.Realm}>
              {visible(nameOf(company) ?? '')}
            </option>
          ))}
        </datalist>
      </label>
      <output id={hint} className="tone-bad">
        {isUnknown && 'No company of this installation has this id.'}
      </output>
    </div>
  )
}
