import { expect, it } from 'vitest'
import { CHANGE_PAUSE_MS } from '../app/read-again.ts'
import { TRANSITIONS_MS } from './installation-watch.ts'
import { COMPANIES_MS, PROCESSES_MS } from './read-intervals.ts'

/** The time from a read until every page shows a difference, with a reserve for a slow machine. */
const SHOWN_MS = 1_000

it('the console reads the companies and the processes often enough to show a change within 5 s', () => {
  for (const ms of [COMPANIES_MS, PROCESSES_MS]) expect(ms + SHOWN_MS).toBeLessThanOrEqual(5_000)
})

it('after an interrupted stream of transitions is connected again, every page is read again within 5 s', () => {
  expect(TRANSITIONS_MS + CHANGE_PAUSE_MS + SHOWN_MS).toBeLessThanOrEqual(5_000)
})
