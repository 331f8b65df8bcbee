/** The intervals at which the console reads the state of the services, in milliseconds. */

/** The interval between two reads of the companies, so that a revoked grant is shown within 5 s. */
export const COMPANIES_MS = 2_500
export const CHANGES_MS = 4_000
/**
 * The interval between two reads of the processes. The counts change only once a minute, but a pause of a process must
 * be shown soon.
 */
export const PROCESSES_MS = 4_000
export const HEALTH_MS = 3_000
export const ALERTS_MS = 15_000
