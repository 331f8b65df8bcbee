import { RunResponse } from '@integration-host/shared/contracts/run'
import {
  headerStatuses,
  ReplayID,
  TransactionID,
} from '@integration-host/shared/contracts/transaction'
import { z } from 'zod'
import { DEFAULT_ATTEMPTS } from '../run/run-detail.ts'

export const MAX_BULK_BYTES = 12_582_912
export const MAX_BULK_LINES = 10_000

const ProcessName = z.string().meta({ examples: ['OrderProcess'] })
export const ProcessParam = z.object({ process: ProcessName })
export const TransactionParam = z.object({ process: ProcessName, id: TransactionID })

const wholeNumber = z
  .string()
  .regex(/^\d{1,10}$/, 'must be a whole number')
  .transform(Number)
/** Returns the parameter for the maximum number of entries of a page. */
export const pageLimit = (max: number) =>
  z
    .string()
    .regex(/^\d{1,3}$/, 'must be a whole number')
    .transform(Number)
    .pipe(z.number().min(1).max(max))
    .default(50)

export const RunQuery = z.object({ replay: wholeNumber.pipe(ReplayID).optional() })

export const RunDetailQuery = RunQuery.extend({
  attempts: wholeNumber.pipe(z.number().max(500, 'must be at most 500')).default(DEFAULT_ATTEMPTS),
  bodies: z.enum(['omit']).optional(),
})

export const EventParam = TransactionParam.extend({ name: z.string() })
export const ItemParam = TransactionParam.extend({ step: z.string() })

export const ChildrenQuery = z.object({
  replay: wholeNumber.pipe(ReplayID).optional(),
  place: z
    .string()
    .optional()
    .meta({ description: 'required if the run has several places with children' }),
  status: z
    .preprocess(
      (value) => (typeof value === 'string' ? [value] : value),
      z.array(z.enum(headerStatuses)).min(1).max(headerStatuses.length),
    )
    .optional(),
  after: wholeNumber.pipe(z.number().max(2_147_483_647)).optional(),
  limit: wholeNumber.pipe(z.number().min(1).max(500)).default(50),
})

export const RunsQuery = z.object({
  before: wholeNumber.pipe(ReplayID).optional(),
  limit: wholeNumber.pipe(z.number().min(1).max(500)).default(50),
})

export const RunsResponse = z
  .object({
    items: z.array(
      RunResponse.pick({
        ReplayID: true,
        Status: true,
        StepName: true,
        ErrorClass: true,
        InDoubt: true,
        InputChanged: true,
        DefinitionVersion: true,
        Version: true,
        CreatedAt: true,
        UpdatedAt: true,
        CompletedAt: true,
        PurgedAt: true,
      }),
    ),
    next_before: z.int().nullable().meta({ description: '`before` of the next page' }),
  })
  .meta({ ref: 'RunList' })
export const RunPage = z
  .object({
    items: z.array(RunResponse),
    next_cursor: z.string().nullable(),
  })
  .meta({ ref: 'RunPage' })
export type RunPage = z.output<typeof RunPage>

export const BulkResponse = z
  .object({
    queued: z.int(),
    absorbed: z
      .int()
      .meta({ description: 'taken over by the waiting run of the same Debounce key' }),
    exists: z.int(),
    conflicts: z.int(),
    invalid: z.int(),
    results: z.array(
      z.object({
        line: z.int().positive(),
        TransactionID: z.string().nullable(),
        outcome: z.enum(['queued', 'absorbed', 'exists', 'conflict', 'invalid']),
        code: z.string().optional(),
        errors: z.array(z.string()).optional(),
      }),
    ),
  })
  .meta({ ref: 'BulkResult' })
export type BulkResponse = z.output<typeof BulkResponse>
