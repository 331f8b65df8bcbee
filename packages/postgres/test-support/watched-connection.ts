import { createHealth } from '@integration-host/shared/observability/health'
import { createLogger } from '@integration-host/shared/observability/logger'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { expect } from 'vitest'
import type { PostgresConnection, PostgresOptions } from '../src/connection.ts'

/** Opens a connection with `connect`, and records each line of its log and what it reports about the database. */
export function watched(connect: (about: PostgresOptions) => PostgresConnection) {
  const lines: Record<string, unknown>[] = []
  const logger = createLogger('test', 'info', {
    write: (line) => void lines.push(JSON.parse(line) as Record<string, unknown>),
  })
  const health = createHealth(logger)
  const connection = connect({ name: 'test', dependency: health.dependency('postgres'), logger })
  const waiting = () => lines.filter(({ msg }) => msg === 'dependency is down')
  return {
    lines,
    waiting,
    ready: () => eventually(() => expect(health.report().status).toBe('ready')),
    /** Resolves with the reported reason why the database is not ready. */
    reason: () =>
      eventually(() => {
        expect(waiting()).toHaveLength(1)
        return String(waiting()[0]?.['reason'])
      }),
    [Symbol.asyncDispose]: () => connection[Symbol.asyncDispose](),
  }
}
