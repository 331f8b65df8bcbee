/** The pages of the companies: the list, one company, and connect links. */
import {
  CredentialCounts,
  credentialStates,
  CredentialView,
} from '@integration-host/shared/contracts/credential'
import { Label, Reason } from '@integration-host/shared/contracts/text'
import { Realm } from '@integration-host/shared/contracts/realm'
import { z } from 'zod'
import { ActivityEntry } from './activity.ts'

export const CompanyView = CredentialView.extend({
  Realm,
  IsPaused: z.boolean().optional().meta({ description: 'whether its runs are paused' }),
}).meta({ ref: 'Company' })
export type CompanyView = z.output<typeof CompanyView>

export const CompaniesQuery = z.strictObject({
  state: z.enum(credentialStates).optional(),
  q: z.string().min(1).max(100).optional(),
  cursor: z.string().max(200).optional(),
})

export const CompaniesView = z
  .object({
    Companies: z.array(CompanyView),
    Counts: CredentialCounts,
    Next: z.string().nullable(),
  })
  .meta({ ref: 'Companies' })
export type CompaniesView = z.output<typeof CompaniesView>

export const CompanyPageView = z
  .object({
    Company: CompanyView,
    Pause: z
      .object({
        At: z.iso.datetime().nullable(),
        By: z.string().nullable(),
        Reason: z.string().nullable(),
      })
      .nullable()
      .optional()
      .meta({
        description: 'the pause of the runs of the company; null if there is none',
      }),
    WaitingRuns: z.int().nullable().meta({
      description: 'how many runs wait for the company; null before the coordinator has counted',
    }),
    History: z
      .array(ActivityEntry)
      .meta({ description: 'the newest entries of the audit log without token issuances' }),
  })
  .meta({ ref: 'CompanyPage' })
export type CompanyPageView = z.output<typeof CompanyPageView>

/** The actions on the runs of a company. */
export const companyActions = ['pause', 'resume'] as const

/** The body of an action on a company. `Version` is the version that the person has seen. */
export const CompanyActionBody = z
  .strictObject({ Version: z.int().positive(), Reason })
  .meta({ ref: 'CompanyAction' })
/** The response of a disconnection. */
export const Disconnected = z
  .object({
    Revoked: z.boolean().meta({ description: 'the provider has confirmed the end of the grant' }),
  })
  .meta({ ref: 'Disconnected' })
export type Disconnected = z.output<typeof Disconnected>
export const LabelBody = z.strictObject({ Label: Label.nullable() }).meta({ ref: 'LabelCompany' })

export const ConnectLinkBody = z
  .strictObject({
    Realm: Realm.optional().meta({ description: 'the only company that the link may connect' }),
    Label: Label.optional(),
    Hours: z.int().min(1).max(168),
  })
  .meta({ ref: 'CreateConnectLink' })

export const ConnectLinkView = z
  .object({ Url: z.string(), ExpiresAt: z.iso.datetime() })
  .meta({ ref: 'ConnectLink' })
export type ConnectLinkView = z.output<typeof ConnectLinkView>
