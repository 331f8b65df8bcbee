import type { ConditionAction, ConditionView } from '../../src/contracts/now.ts'
import { numberText } from '../../src/isomorphic/texts.ts'
import { DocumentLink, Link, runbookSection } from './link.tsx'
import { goTo } from '../router.ts'
import { Ago, AsOf } from './ago.tsx'
import { BlockableButton, useRole } from './blockable-button.tsx'
import { BulkButton } from './bulk-button.tsx'
import { ConnectButton } from './connect-button.tsx'
import { Glyph, type Tone } from './glyph.tsx'
import { ResumeButton } from './pause.tsx'
import { Outside } from './elements.tsx'

const TONES: Readonly<Record<ConditionView['Severity'], Tone>> = {
  critical: 'bad',
  warning: 'warn',
  info: 'info',
}
const SEVERITY_WORDS: Readonly<Record<ConditionView['Severity'], string>> = {
  critical: 'Critical',
  warning: 'Warning',
  info: 'Note',
}

/** Shows the conditions on the page Now, each with what a person can do about the condition. */
export function Conditions({ conditions }: { readonly conditions: readonly ConditionView[] }) {
  return (
    <ul className="conditions">
      {conditions.map((condition) => (
        <li
          key={condition.Key}
          className={`panel condition edge-${TONES[condition.Severity]} ${condition.AsOf === null ? '' : 'outdated'}`}
        >
          <Glyph tone={TONES[condition.Severity]} />
          <div>
            <h2>
              <span className="unseen">{SEVERITY_WORDS[condition.Severity]}: </span>
              <Outside text={condition.Title} />
            </h2>
            {condition.Detail !== '' && (
              <p className="detail">
                <Outside text={condition.Detail} />
              </p>
            )}
            <p className="remedy">
              <Outside text={condition.Remedy} />
            </p>
            {condition.Action !== null && (
              <div className="buttons">
                <Action
                  action={condition.Action}
                  affected={condition.Affected}
                  page={condition.Page}
                />
              </div>
            )}
          </div>
          <div className="aside">
            <span className={`word tone-${TONES[condition.Severity]}`} aria-hidden="true">
              {SEVERITY_WORDS[condition.Severity]}
            </span>
            <span className="muted">
              {condition.Begin === null ? (
                <Ago time={condition.Since} prefix="for " />
              ) : (
                <>
                  {condition.Begin} <Ago time={condition.Since} />
                </>
              )}
            </span>
            {condition.AsOf !== null && <AsOf time={condition.AsOf} />}
            <span className="links">
              {condition.Page !== null && <Link to={condition.Page}>Show</Link>}
              {condition.InRunbook && (
                <DocumentLink to={runbookSection(condition.Name)}>
                  Runbook<span className="unseen"> on {condition.Name}</span>
                </DocumentLink>
              )}
            </span>
          </div>
        </li>
      ))}
    </ul>
  )
}

interface ActionProps {
  readonly action: ConditionAction
  readonly affected: number
  /** The page that shows the affected objects. */
  readonly page: string | null
}

function Action({ action, affected, page }: ActionProps) {
  const role = useRole()
  switch (action.Kind) {
    case 'resume_runs':
      return (
        <>
          {action.DataRejected && page !== null && (
            <BlockableButton blocked={role} onClick={() => goTo(page)}>
              {affected === 1 ? 'Queue a copy with changes…' : 'Queue copies with changes…'}
            </BlockableButton>
          )}
          <BulkButton
            action="resume"
            scope={{
              process: action.Process,
              filter: {
                status: 'Failed',
                children: 'true',
                ...(action.Step !== null && { step: action.Step }),
                ...(action.Class !== null && { class: action.Class }),
              },
            }}
            label={`Resume ${numberText(affected)}`}
            isDataRejected={action.DataRejected}
          />
        </>
      )
    case 'connect_company':
      return <ConnectButton company={action} />
    case 'send_links':
      return (
        <BlockableButton blocked={role} onClick={() => goTo('/companies?state=must_reconnect')}>
          Send links…
        </BlockableButton>
      )
    case 'resume_process':
      return <ResumeButton process={action.Process} />
    case 'resume_company':
      return (
        <ResumeButton realm={action.Realm} name={action.CompanyName ?? `company ${action.Realm}`} />
      )
  }
}
