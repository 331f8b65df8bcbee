import { DEFAULT_ATTEMPTS, NO_LEASE, type RunReader } from '../../run/run-detail.ts'
import type { StoredRun } from '../../run/transitions.ts'
import type { RunTable } from './run-table.ts'

/** Defaults for the members of an attempt that was stored by an earlier version without them. */
const NO_REQUEST = { Request: null, TraceId: null, ResponseId: null }

export const runReader = (table: RunTable): RunReader => ({
  async get(process, transactionId, replayId, { attempts = DEFAULT_ATTEMPTS, bodies = true } = {}) {
    const stored = table.find(process, transactionId, replayId)
    if (stored === undefined) return null
    const newest = attempts === 0 ? [] : stored.attempts.slice(-attempts)
    const step = typeof bodies === 'object' ? bodies.step : null
    const items = stored.items.filter(({ StepName }) => step === null || StepName === step)
    return {
      run: stored.header,
      lease: leaseOf(stored),
      items: bodies
        ? items
        : items.map(({ State: _state, Ask: _ask, ...item }) => ({
            ...item,
            ResponseBody: null,
            Data: null,
          })),
      attempts: newest.map((attempt) => ({ ...NO_REQUEST, ...attempt })),
      attemptCount: stored.attempts.length,
    }
  },

  runsOf: async (process, transactionId, { before = Number.POSITIVE_INFINITY, limit }) =>
    table
      .runsOf(process, transactionId)
      .filter(({ header }) => header.ReplayID < before)
      .toSorted((a, b) => b.header.ReplayID - a.header.ReplayID)
      .slice(0, limit)
      .map(({ header }) => ({
        ReplayID: header.ReplayID,
        Status: header.Status,
        StepName: header.StepName,
        ErrorClass: header.ErrorClass,
        InDoubt: header.InDoubt,
        InputChanged: header.InputChanged,
        DefinitionVersion: header.DefinitionVersion,
        Realm: header.Realm,
        Version: header.Version,
        CreatedAt: header.CreatedAt,
        UpdatedAt: header.UpdatedAt,
        CompletedAt: header.CompletedAt,
        PurgedAt: header.PurgedAt,
      })),
})

const leaseOf = ({ lease }: StoredRun) =>
  lease === null
    ? NO_LEASE
    : {
        LeaseOwner: lease.owner,
        LeaseUntil: new Date(lease.until).toISOString(),
        StartedAt: lease.startedAt,
      }
