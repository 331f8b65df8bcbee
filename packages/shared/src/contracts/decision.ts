/** What a person is shown who decides about an event, and what this person can choose. */
import { z } from 'zod'
import { Reason, hasOnlyVisible, isVisibleName } from './text.ts'

const Fact = z.union([z.string(), z.number(), z.boolean(), z.null()])

export type Fact = z.output<typeof Fact>

/** The member `Ask` of the item of an event, as its process has written it when the run got there. */
export const DecisionAsk = z
  .object({ title: z.string(), facts: z.record(z.string(), Fact) })
  .meta({ ref: 'DecisionAsk' })
export type DecisionAsk = z.output<typeof DecisionAsk>

/** What can be chosen: the member of the data of the event, and its values. */
export const DecisionChoices = z
  .object({
    Event: z.string(),
    Member: z.string().meta({ description: 'the member of the data that has the choice' }),
    Choices: z.array(z.union([z.boolean(), z.string()])),
    HasNote: z.boolean().meta({ description: 'whether the data may have the text `note`' }),
  })
  .meta({ ref: 'DecisionChoices' })
export type DecisionChoices = z.output<typeof DecisionChoices>

/** Returns the text of a fact, or of the button for a choice. */
export const factText = (fact: Fact): string =>
  fact === true ? 'Yes' : fact === false ? 'No' : fact === null ? '–' : String(fact)

/** The person for whom a link is made: a name or an e-mail address. */
export const DecidingPerson = z
  .string()
  .max(100, 'must have at most 100 characters')
  .refine((text) => hasOnlyVisible(text) && isVisibleName(text) && text.trim() === text, {
    error: 'must be a name or an e-mail address, without invisible characters',
  })

/** The key id of the sender of a decision that was made with a link. No service key can have this id. */
export const DECISION_LINK = 'coordinator:decision-link'

export const MAX_LINK_SECONDS = 366 * 86_400
/** The request body of `POST …/transactions/{id}/events/{name}/links`. */
export const CreateDecisionLink = z
  .strictObject({
    For: DecidingPerson.meta({ description: 'who decides with the link' }),
    ExpiresInSeconds: z.int().min(1).max(MAX_LINK_SECONDS).optional().meta({
      description: '7 days by default; at most the timeout of the event',
    }),
    Reason: Reason.optional(),
  })
  .meta({ ref: 'CreateDecisionLink' })
export type CreateDecisionLink = z.output<typeof CreateDecisionLink>

export const DecisionLink = z
  .object({
    Url: z.url().meta({ description: 'who has this address decides as the person' }),
    ExpiresAt: z.iso.datetime(),
  })
  .meta({ ref: 'DecisionLink' })
export type DecisionLink = z.output<typeof DecisionLink>
