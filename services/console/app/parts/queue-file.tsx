import { useMutation, useQueryClient } from '@tanstack/react-query'
import { type FormEvent, useEffect, useRef, useState } from 'react'
import type { QueuedLines } from '../../src/contracts/queue.ts'
import { counted } from '../../src/isomorphic/count-text.ts'
import { runPage } from '../../src/isomorphic/pages.ts'
import { call, hasEnded } from '../api.ts'
import { copy, download } from '../copy.ts'
import { readAllAgain } from '../live.ts'
import {
  type LineFile,
  lineFile,
  type LineResult,
  lineResults,
  resultLines,
  resultText,
  summaryOf,
} from '../queue-lines.ts'
import { visible } from '../visible.ts'
import { BlockedNotice, useBlocked } from './blockable-button.tsx'
import { FieldName } from './field-name.tsx'
import { Link } from './link.tsx'
import { useProcesses } from './queue-form.tsx'
import { QueueProblem } from './queue-result.tsx'
import { Outside } from './text.tsx'

/** The maximum number of results that the page shows. The file of results has all of them. */
const SHOWN = 200

export interface QueueFileProps {
  readonly process: string
  readonly onClose: () => void
}

/** Queues the lines of a file, and shows the result of each line. */
export function QueueFile({ process: first, onClose }: QueueFileProps) {
  const [process, setProcess] = useState(first)
  const [file, setFile] = useState<LineFile | null>(null)
  const { names, paused } = useProcesses(process, setProcess)
  const queries = useQueryClient()
  const isBlocked = useBlocked() !== undefined
  const key = useRef('')
  const queue = useMutation({
    mutationFn: async (lines: LineFile) => {
      key.current ||= crypto.randomUUID()
      const body = { Process: process, Lines: lines.text }
      const result = await call<QueuedLines>('POST', '/queue/lines', body, key.current)
      return lineResults(lines, result)
    },
    onSettled: (_, error) => {
      if (hasEnded(error)) key.current = ''
      return readAllAgain(queries)
    },
  })
  const choose = async (chosen: File | undefined): Promise<void> => {
    key.current = ''
    setFile(chosen === undefined ? null : lineFile(await chosen.text(), chosen.size))
  }
  const canQueue = file?.fault === null && !isBlocked && !queue.isPending
  const submit = (event: FormEvent<HTMLFormElement>): void => {
    event.preventDefault()
    if (canQueue) queue.mutate(file)
  }
  if (queue.data !== undefined)
    return <Results process={process} results={queue.data} onClose={onClose} />
  return (
    <form onSubmit={submit}>
      <label>
        Process
        <select
          required
          value={process}
          onChange={({ currentTarget }) => {
            key.current = ''
            setProcess(currentTarget.value)
          }}
        >
          {names.map((name) => (
            <option key={name} value={name}>
              {visible(name)}
            </option>
          ))}
        </select>
      </label>
      {paused !== undefined && (
        <p className="muted">The process is paused{paused}. Its runs wait until it is resumed.</p>
      )}
      <label>
        <FieldName need="required">File</FieldName>
        <input
          type="file"
          required
          accept=".ndjson,.jsonl,.json,.txt"
          aria-describedby="lines"
          onChange={({ currentTarget }) => void choose(currentTarget.files?.[0])}
        />
      </label>
      <p id="lines" className={(file?.fault ?? null) === null ? 'muted' : 'tone-bad'}>
        {file === null ? (
          <>
            At most 10,000 lines, each one such as{' '}
            <code>{'{"TransactionID": "66", "InitialData": {"amount": 12.5}}'}</code>. The valid
            lines are queued, even if others are not valid.
          </>
        ) : (
          (file.fault ?? `${counted(file.lines.length, 'transaction')}.`)
        )}
      </p>
      {queue.error !== null && <QueueProblem error={queue.error} />}
      <BlockedNotice />
      <div className="buttons">
        <button type="button" onClick={onClose}>
          Back
        </button>
        <button type="submit" className="primary" aria-disabled={!canQueue}>
          {queue.isPending
            ? 'One moment…'
            : file === null || file.fault !== null
              ? 'Queue'
              : `Queue ${counted(file.lines.length, 'transaction')}`}
        </button>
      </div>
    </form>
  )
}

interface ResultsProps {
  readonly process: string
  readonly results: readonly LineResult[]
  readonly onClose: () => void
}

function Results({ process, results, onClose }: ResultsProps) {
  const summary = useRef<HTMLParagraphElement>(null)
  useEffect(() => summary.current?.focus(), [])
  const lines = resultLines(results)
  return (
    <>
      <p ref={summary} tabIndex={-1}>
        <strong>{summaryOf(results)}</strong>
      </p>
      {/* A person can focus this element and scroll it with the keyboard. */}
      {/* oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex */}
      <section className="scroll" tabIndex={0} aria-label="Results by line">
        <table>
          <thead>
            <tr>
              <th scope="col" className="number">
                Line
              </th>
              <th scope="col">Transaction</th>
              <th scope="col">Result</th>
            </tr>
          </thead>
          <tbody>
            {results.slice(0, SHOWN).map((result) => (
              <tr key={result.line}>
                <td>{result.line}</td>
                <td className="outside">
                  {result.id === null || result.outcome === 'invalid' ? (
                    <Outside text={result.id ?? '—'} />
                  ) : (
                    <Link to={runPage(process, result.id)}>
                      <Outside text={result.id} />
                    </Link>
                  )}
                </td>
                <td className="outside">
                  <Outside text={resultText(result)} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </section>
      {results.length > SHOWN && (
        <p className="muted">
          These are {SHOWN} of {results.length} results, the failures first.
        </p>
      )}
      <div className="buttons">
        <button type="button" onClick={() => copy(lines)}>
          Copy results
        </button>
        <button type="button" onClick={() => download(lines, 'queued.ndjson')}>
          Download results
        </button>
        <button type="button" className="primary" onClick={onClose}>
          Close
        </button>
      </div>
    </>
  )
}
