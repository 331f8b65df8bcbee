/**
 * Replaces `services/console/src/read-intervals.ts` in the tests with a browser (see vitest.config.ts): the console reads
 * the services more often, so that the tests wait less for changes.
 */
export const COMPANIES_MS = 500
export const CHANGES_MS = 1_000
export const PROCESSES_MS = 500
export const HEALTH_MS = 1_000
export const ALERTS_MS = 1_000
