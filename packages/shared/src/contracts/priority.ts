import { z } from 'zod'

/** The priorities of runs, as clients name them. */
export const priorities = ['normal', 'high'] as const

/**
 * How soon a run gets its turn. Runs with `high` get four of five deliveries while both kinds wait, and free slots
 * first. The default is `normal`.
 */
export const Priority = z.enum(priorities, 'must be normal or high')
export type Priority = z.output<typeof Priority>
