import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import type { Excerpt, RunDataView, RunView } from '../../src/contracts/runs.ts'
import { call } from '../api.ts'
import { runApi } from '../router.ts'
import { ReadProblem } from './problem.tsx'
import { Outside } from './text.tsx'

/** Shows the business data of the run, which is read only if the person opens this part. */
export function RunData({ run }: { readonly run: RunView }) {
  const { Process: process, TransactionID: id } = run
  const [isShown, setShown] = useState(false)
  const data = useQuery({
    queryKey: ['run', process, id, String(run.ReplayID), 'data', run.Version],
    queryFn: () => call<RunDataView>('GET', `${runApi(process, id)}/data?run=${run.ReplayID}`),
    enabled: isShown,
  })
  return (
    <section className="panel" aria-labelledby="data">
      <h2 id="data">Data</h2>
      {!isShown && (
        <>
          <p className="muted">The initial data of the run, and the responses of its steps.</p>
          <div className="buttons">
            <button type="button" onClick={() => setShown(true)}>
              Show data
            </button>
          </div>
        </>
      )}
      <ReadProblem error={data.error} hasData={data.data !== undefined} />
      {data.data !== undefined && (
        <>
          <Text name="Initial data" excerpt={data.data.InitialData} />
          {data.data.Items.map(({ StepName, Data: item, ResponseBody }) => (
            <div key={StepName}>
              <Text name={`Data of ${StepName}`} excerpt={item} />
              <Text name={`Response of ${StepName}`} excerpt={ResponseBody} />
            </div>
          ))}
        </>
      )}
    </section>
  )
}

function Text({ name, excerpt }: { readonly name: string; readonly excerpt: Excerpt }) {
  if (excerpt === null) return null
  return (
    <details className="text" open>
      <summary>
        <Outside text={name} />
      </summary>
      <pre>
        <Outside text={excerpt.Text} hasLines />
      </pre>
      {!excerpt.IsWhole && <p className="muted">The text is longer; this is its beginning.</p>}
    </details>
  )
}
