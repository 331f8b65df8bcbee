import { createHealth } from '@integration-host/shared/observability/health'
import { createLogger } from '@integration-host/shared/observability/logger'
import { Secret } from '@integration-host/shared/secrets/secret'
import { until } from '@integration-host/shared/test-support/eventually'
import { connectPostgres } from '../src/adapters/postgres/connection.ts'
import {
  createPostgresTransactionSource,
  type PostgresSourceOptions,
} from '../src/adapters/postgres/transaction-source.ts'
import type { TransactionSource } from '../src/run/transaction-source.ts'

/** Opens a transaction source on a database. Resolves when its tables exist and it can be used. */
export async function openPostgresSource(
  url: string,
  options: PostgresSourceOptions = {},
): Promise<TransactionSource> {
  const logger = createLogger('test', 'silent')
  const health = createHealth(logger)
  const dependency = health.dependency('postgres')
  const source = createPostgresTransactionSource(
    connectPostgres(new Secret(url), { name: 'test', dependency, logger }),
    options,
  )
  await until(() => health.report().status === 'ready')
  return source
}
