/**
 * A setup file: the console reads the services several times a second, so that the tests wait less for changes. A test
 * that checks how soon a change is shown uses `vi.unmock` to get the intervals of operation.
 */
import { vi } from 'vitest'

vi.mock('../../services/console/src/read-intervals.ts', () => ({
  COMPANIES_MS: 500,
  CHANGES_MS: 1_000,
  PROCESSES_MS: 500,
  HEALTH_MS: 1_000,
  ALERTS_MS: 1_000,
}))
