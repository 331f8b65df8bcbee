import {
  connectPostgres as connect,
  type PostgresConnection,
  type PostgresOptions,
} from '@integration-host/postgres/connection'
import type { Secret } from '@integration-host/shared/secrets/secret'
import { migrate } from './migrate.ts'

/**
 * Disables full scans, and joins that need full scans. PostgreSQL plans a prepared statement while the tables are small
 * and keeps that plan after they have grown. With full scans enabled, every transaction could then scan a whole table,
 * although every statement can find its rows by an index.
 */
const LOOKUP_BY_KEY = {
  enable_seqscan: 'off',
  enable_hashjoin: 'off',
  enable_mergejoin: 'off',
  // While full scans are disabled, an unavoidable full scan has such a high cost estimate that PostgreSQL would spend
  // time on JIT compilation.
  jit: 'off',
}

/** Connects to the coordinator's database in the background, and creates or migrates its tables first. */
export const connectPostgres = (
  url: Secret,
  options: Omit<PostgresOptions, 'migrate' | 'session'>,
): PostgresConnection => connect(url, { ...options, migrate, session: LOOKUP_BY_KEY })
