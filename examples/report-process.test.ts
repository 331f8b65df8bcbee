import { startTestHost } from 'integration-host/testing'
import { expect, it } from 'vitest'
import reportProcess from './report-process.ts'

const erpKey = 'canary-erp-key-0123456789'

it('the report process waits until the report is ready, and the ERP key occurs only in calls to the ERP', async () => {
  await using host = await startTestHost({
    processes: reportProcess,
    settings: { ReportProcess: { erpUrl: 'https://erp.test', erpKey, pollSeconds: 600 } },
  })
  const erp = host
    .target('https://erp.test')
    .on('POST /reports', ({ headers }) => ({ body: { id: '7', by: headers['authorization'] } }))
    .on('GET /reports/7', [{ status: 202 }, { status: 202 }, { body: { rows: 66 } }])
  const run = await host.run('ReportProcess', 'r-1', { month: '2026-10' })
  run.toHaveStatus('Retrying')
  await host.advance('20 minutes')
  expect([run.data('order'), run.data('rows')]).toEqual(['7', 66])
  const headers = { authorization: `Bearer ${erpKey}` }
  erp.toHaveCalled('POST /reports', { times: 1, headers, body: { month: '2026-10' } })
  erp.toHaveCalled('GET /reports/7', { times: 3, headers })
  expect(run.view.Items[0]?.ResponseBody).toBe('{"id":"7","by":"Bearer [secret]"}')
  expect(JSON.stringify(run.view)).not.toContain(erpKey)
})
