import { nameIn } from '../../src/isomorphic/texts.ts'
import type { EntryRow } from '../../src/contracts/entries.ts'
import { entriesPage, runPage } from '../../src/isomorphic/pages.ts'
import { full } from '../clock.ts'
import { Ago } from './ago.tsx'
import { State, type Tone } from './glyph.tsx'
import { Link } from './link.tsx'
import { Outside, TableHead } from './elements.tsx'

/** What is known of the object of an entry, in the order in which the page offers the states as filters. */
export const ENTRY_STATES: Readonly<
  Record<string, { readonly tone: Tone; readonly text: string }>
> = {
  ChangedOutside: { tone: 'warn', text: 'Changed' },
  Voided: { tone: 'warn', text: 'Voided' },
  Deleted: { tone: 'bad', text: 'Deleted' },
  Missing: { tone: 'bad', text: 'Not found' },
  Recorded: { tone: 'quiet', text: 'Not checked yet' },
  Verified: { tone: 'good', text: 'As written' },
  Superseded: { tone: 'quiet', text: 'Written again' },
  Unproven: { tone: 'quiet', text: 'Not comparable' },
}
const FINDINGS = new Set(['ChangedOutside', 'Voided', 'Deleted', 'Missing'])
const OPERATIONS: Readonly<Record<string, string>> = {
  create: 'created',
  update: 'changed',
  delete: 'deleted',
  void: 'voided',
}

/** Whether the object was changed by a person or another program, or is gone. */
export const isFinding = ({ State: state }: EntryRow): boolean => FINDINGS.has(state)

/** Shows what is known of the object of an entry, with the names of the fields that were changed. */
export function EntryState({ entry }: { readonly entry: EntryRow }) {
  const { State: state, Changed: changed } = entry
  return (
    <>
      <State tone={ENTRY_STATES[state]?.tone ?? 'quiet'}>
        <Outside text={ENTRY_STATES[state]?.text ?? state} />
      </State>
      {changed !== null && changed.length > 0 && (
        <span className="muted">
          {': '}
          <Outside text={changed.join(', ')} />
        </span>
      )}
    </>
  )
}

/** Links to all entries of an object. */
export function EntryObject({ entry }: { readonly entry: EntryRow }) {
  const { Realm: realm, Entity: entity, EntityID: id } = entry
  return <Link to={entriesPage({ realm, entity, id })} text={`${entity} ${id}`} />
}

export interface EntryTableProps {
  readonly entries: readonly EntryRow[]
  /** The names of the companies, by realm; absent if all entries belong to one company. */
  readonly companies?: Readonly<Record<string, string>>
}

/** Shows what runs have written to the books: the object, what is known of it, and the run and the step. */
export function EntryTable({ entries, companies }: EntryTableProps) {
  return (
    <table>
      <TableHead
        columns={[
          'Object',
          'In the books',
          ['Written by', 'process'],
          ['Written', 'time except-phone'],
        ]}
      />
      <tbody>
        {entries.map((entry) => (
          <tr key={entry.EntryID}>
            <td className="outside">
              <EntryObject entry={entry} />
              {companies !== undefined && (
                <div className="muted">
                  <Outside text={nameIn(companies, entry.Realm) ?? entry.Realm} />
                </div>
              )}
            </td>
            <td className="outside">
              <EntryState entry={entry} />
              {entry.CheckedAt !== null && (
                <div className="muted" title={full(entry.CheckedAt)}>
                  checked <Ago time={entry.CheckedAt} />
                </div>
              )}
            </td>
            <td className="outside">
              <Link
                to={runPage(entry.Process, entry.TransactionID, entry.ReplayID)}
                text={entry.TransactionID}
              />
              <div className="muted">
                <Outside
                  text={`${OPERATIONS[entry.Operation] ?? entry.Operation} by ${entry.Process}.${entry.StepName}${entry.ReplayID === 0 ? '' : `, run ${entry.ReplayID}`}`}
                />
              </div>
            </td>
            <td className="except-phone">
              <Ago time={entry.RecordedAt} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  )
}
