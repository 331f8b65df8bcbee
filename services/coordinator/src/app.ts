import type { Caller } from '@integration-host/shared/access/caller'
import { hasCode, IntegrationError } from '@integration-host/shared/errors'
import { PROBLEM_CONTENT } from '@integration-host/shared/http/openapi'
import { problemResponse } from '@integration-host/shared/http/problem'
import { createServiceApp } from '@integration-host/shared/http/service-app'
import type { Context } from 'hono'
import type { AppDeps } from './core.ts'
import { actionRoutes } from './routes/actions.ts'
import { changesRoutes } from './change-feed/change-routes.ts'
import { deadLetterRoutes } from './dead-letter/dead-letter-routes.ts'
import { companyPauseRoutes } from './company-pause/company-pause-routes.ts'
import { DECISIONS_PATH } from './decision/decision-links.ts'
import { decisionRoutes, MAX_DECISION_BYTES } from './decision/decision-routes.ts'
import { MAX_BULK_BYTES } from './routes/contracts.ts'
import { MAX_TRANSACTION_BYTES } from './run/queueable.ts'
import { checkBooksRoutes, entryRoutes } from './entry/entry-routes.ts'
import { erasureRoutes } from './erasure/erasure-routes.ts'
import { eventRoutes } from './events/events-routes.ts'
import { exportRoutes } from './routes/export.ts'
import { integrityRoutes } from './routes/integrity.ts'
import { keyOperationRoutes } from './bulk/key-operation-routes.ts'
import { operationRoutes } from './bulk/operation-routes.ts'
import { processRoutes } from './routes/processes.ts'
import { processRunSearchRoutes, runSearchRoutes } from './routes/run-search.ts'
import { scheduleRoutes } from './schedule/schedule-routes.ts'
import { summaryRoutes } from './routes/summary.ts'
import { transactionRoutes } from './routes/transactions.ts'

export const createApp = (deps: AppDeps) =>
  createServiceApp(
    {
      name: 'coordinator',
      purpose: 'Runs named multi-step processes: queue, replay and inspect transactions.',
      logger: deps.logger,
      health: deps.health,
      metrics: deps.metrics,
      keys: deps.keys,
      maxBodyBytes: MAX_TRANSACTION_BYTES,
      maxBodyBytesAt: {
        '*/transactions/bulk': MAX_BULK_BYTES,
        [`${DECISIONS_PATH}/*`]: MAX_DECISION_BYTES,
      },
      openPaths: [`${DECISIONS_PATH}/*`],
      errorResponses: {
        respond: respondWithKnownProcesses(deps.processes),
        content: PROBLEM_CONTENT,
      },
    },
    (app) => {
      app.route('/transactions', runSearchRoutes(deps))
      app.route('/processes/:process/transactions', processRunSearchRoutes(deps))
      app.route('/processes/:process/transactions', transactionRoutes(deps))
      app.route('/processes/:process/dead-letters', deadLetterRoutes(deps))
      app.route('/processes', processRoutes(deps))
      app.route('/operations', operationRoutes(deps))
      app.route('/keys', keyOperationRoutes(deps))
      app.route('/schedules', scheduleRoutes(deps))
      app.route('/realms', changesRoutes(deps))
      app.route('/realms', checkBooksRoutes(deps))
      app.route('/realms', companyPauseRoutes(deps))
      app.route('/processes', summaryRoutes(deps))
      app.route('/actions', actionRoutes(deps))
      app.route('/transactions', exportRoutes(deps))
      app.route(DECISIONS_PATH, decisionRoutes(deps))
      app.route('/entries', entryRoutes(deps))
      app.route('/erasures', erasureRoutes(deps))
      app.route('/events', eventRoutes(deps))
      app.route('/integrity', integrityRoutes(deps))
    },
  )

const MAX_NAMES = 10

/**
 * Returns a function that adds the names of loaded processes to the response for an unknown process, because the
 * requested name is often only misspelled. It adds only processes that the key may use.
 */
export const respondWithKnownProcesses =
  (processes: ReadonlyMap<string, unknown>) =>
  (c: Context, error: unknown): Response => {
    if (!hasCode(error, 'process_not_found')) return problemResponse(c, error)
    const caller = c.get('caller') as Caller | undefined
    const names = [...processes.keys()].filter((name) => caller?.mayUseProcess(name))
    return problemResponse(
      c,
      new IntegrationError(error.code, `${error.message}; ${loaded(names)}`, { cause: error }),
    )
  }

function loaded(names: readonly string[]): string {
  if (names.length === 0) return 'no process that this key may use is loaded'
  const others = names.length - MAX_NAMES
  return `loaded: ${names.slice(0, MAX_NAMES).join(', ')}${others > 0 ? ` and ${others} more` : ''}`
}
