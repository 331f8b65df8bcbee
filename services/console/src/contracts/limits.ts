/**
 * The page Limits: which companies are in a cool-down after a 429, whose calls wait, and how many calls are metered.
 */
import {
  RealmActivity,
  RealmActivityList,
  RealmCalls,
} from '@integration-host/shared/contracts/realm-activity'
import { z } from 'zod'

export const CompanyLimits = RealmActivity.extend({
  Label: z.string().nullable().meta({ description: 'the name by which people know the company' }),
})
export type CompanyLimits = z.output<typeof CompanyLimits>

export const LimitsView = z
  .object({
    Limits: RealmActivityList.shape.Limits.nullable().meta({
      description: 'for each company; null while no gateway responds',
    }),
    Companies: z.array(CompanyLimits),
    Resting: z.int().meta({ description: 'companies in a cool-down' }),
    Waiting: z.int().meta({ description: 'calls that wait for a permit' }),
    Month: z.string(),
    Metered: z.int().nullable().meta({ description: 'the metered calls of this month' }),
    Budget: z.int().nullable().meta({ description: 'MONTHLY_BUDGET' }),
    Replicas: z.int().meta({ description: 'the replicas of the gateway that have responded' }),
    Silent: z.array(z.string()).meta({ description: 'the addresses of the others' }),
  })
  .meta({ ref: 'Limits' })
export type LimitsView = z.output<typeof LimitsView>

export const CompanyLimitsView = z
  .object({
    Company: CompanyLimits,
    Limits: LimitsView.shape.Limits,
    Calls: RealmCalls.shape.Calls,
    Replicas: LimitsView.shape.Replicas,
    Silent: LimitsView.shape.Silent,
  })
  .meta({ ref: 'CompanyLimits' })
export type CompanyLimitsView = z.output<typeof CompanyLimitsView>
