import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import type { Excerpt, RunDataView, RunText, RunView } from '../../src/contracts/runs.ts'
import { runPage, withQuery } from '../../src/isomorphic/pages.ts'
import { readText } from '../api.ts'
import { sizeText } from '../clock.ts'
import { showFragment, useFragment } from '../router.ts'
import { BlockableButton, useDataReason, useSession } from './blockable-button.tsx'
import { JsonView } from './json-view.tsx'
import { ReadProblem } from './problem.tsx'
import { Outside, Panel } from './elements.tsx'
import { useRead } from '../reads.ts'

/**
 * Shows the business data of the run. The data is read only if the person opens this part: the fragment of the address
 * is then `data`.
 */
export function RunData({ run }: { readonly run: RunView }) {
  const { Process: process, TransactionID: id } = run
  // The data is also shown if a person opens a link to this part.
  const isShown = useFragment() === 'data'
  const { SeesData } = useSession()
  const noData = useDataReason()
  const key = ['run', process, id, String(run.ReplayID), 'data', run.Version]
  const path = `${runPage(process, id)}/data?run=${run.ReplayID}`
  const data = useRead<RunDataView>(key, path, { enabled: isShown && SeesData })
  const isOpen = isShown && SeesData
  return (
    <Panel title="Data" id="data">
      {!isOpen && (
        <>
          <p className="muted">The initial data of the run, and the responses of its steps.</p>
          <div className="buttons">
            <BlockableButton blocked={noData} onClick={() => showFragment('data')}>
              Show data
            </BlockableButton>
          </div>
        </>
      )}
      <ReadProblem error={data.error} hasData={data.data !== undefined} />
      {SeesData && data.data !== undefined && (
        <>
          <Text run={run} name="Initial data" of="initial" excerpt={data.data.InitialData} />
          {data.data.Items.map(({ StepName: step, Data: item, State: state, ResponseBody }) => (
            <div key={step}>
              <Text run={run} name={`Data of ${step}`} of="data" step={step} excerpt={item} />
              <Text run={run} name={`State of ${step}`} of="state" step={step} excerpt={state} />
              <Text
                run={run}
                name={`Response of ${step}`}
                of="response"
                step={step}
                excerpt={ResponseBody}
              />
            </div>
          ))}
        </>
      )}
    </Panel>
  )
}

interface TextProps {
  readonly run: RunView
  readonly name: string
  readonly of: RunText
  readonly step?: string
  readonly excerpt: Excerpt
}

function Text({ run, name, of, step, excerpt }: TextProps) {
  const [isWhole, setWhole] = useState(false)
  const { Process, TransactionID, ReplayID } = run
  const path = withQuery(`${runPage(Process, TransactionID)}/text`, { run: ReplayID, of, step })
  const whole = useQuery({
    queryKey: ['run-text', path, run.Version],
    queryFn: () => readText(path),
    enabled: isWhole,
    gcTime: 0,
  })
  if (excerpt === null) return null
  return (
    <details className="text" open>
      <summary>
        <Outside text={name} />
      </summary>
      <JsonView text={whole.data ?? excerpt.Text} />
      {!excerpt.IsWhole && (
        <p className="buttons after">
          {whole.data === undefined && (
            <>
              <span className="muted">This is the beginning of the text.</span>
              <button type="button" aria-disabled={isWhole} onClick={() => setWhole(true)}>
                {whole.isLoading ? 'Reading…' : `Show all ${sizeText(excerpt.Bytes)}`}
              </button>
            </>
          )}
          <a href={`/api${path}`} download>
            Download
          </a>
        </p>
      )}
      <ReadProblem error={whole.error} hasData={false} />
    </details>
  )
}
