/** What the page of a decision shows, and the decision itself. */
import { namesInstead } from '@integration-host/shared/similar-name'
import {
  DECISION_LINK,
  DecisionAsk,
  DecidingPerson,
  type DecisionLink as CreatedLink,
} from '@integration-host/shared/contracts/decision'
import { visibleText } from '@integration-host/shared/contracts/text'
import { errorCodes, IntegrationError } from '@integration-host/shared/errors'
import { type Act, recordWithoutChange, requireVersion } from '../run/action.ts'
import { notActive, notFound } from '../run/errors.ts'
import { ONLY_RUN } from '../run/run-detail.ts'
import { type RunKey, runKey } from '../run/run.ts'
import { goesForward, WAITS_FOR_EVENT } from '../run/status.ts'
import type { TransactionSource } from '../run/transaction-source.ts'
import type { Choices } from '../step/ask.ts'
import { type ProcessDefinition, requireMembers } from '../step/definition.ts'
import { LINK_OPTIONS } from '../step/step-request.ts'
import type { LinkOptions } from '../step/step.ts'
import type { RunActions } from '../worker/run-actions.ts'
import { type DecisionLink, type DecisionLinks, expiryOf } from './decision-links.ts'

/** What a person who opens an address finds. */
export type Decision =
  /** The address cannot be used any more, or never could. */
  | { readonly kind: 'void'; readonly why: string }
  /** The run has not got to the event. */
  | { readonly kind: 'early' }
  | {
      readonly kind: 'open'
      readonly person: string
      readonly ask: DecisionAsk
      readonly choices: Choices
    }
  | {
      readonly kind: 'decided'
      /** The person, or the id of the service key that has sent the event. */
      readonly by: string
      readonly isOwn: boolean
      /** `null` if another event was sent, or if the process no longer asks. */
      readonly choice: boolean | string | null
      /** ISO 8601. */
      readonly at: string
      /** `null` if the run never got to the event. */
      readonly title: string | null
    }

/** What a person sends with the form of the page. */
export interface SentDecision {
  /** The choice as the text of its button's value. */
  readonly choice: string
  readonly note: string
}

export type DecisionResult =
  /** `isAccepted`: the decision is the one of this person. */
  | { readonly isAccepted: boolean; readonly decision: Decision }
  /** The data of the event does not allow the note or the choice. */
  | { readonly problem: string; readonly decision: Decision }

export interface DecisionsDeps {
  readonly source: Pick<TransactionSource, 'get' | 'records' | 'runsOf'>
  readonly processes: ReadonlyMap<string, ProcessDefinition>
  readonly runActions: Pick<RunActions, 'process' | 'signal'>
  readonly links: DecisionLinks
  readonly now: () => number
}

export type Decisions = ReturnType<typeof createDecisions>

/** Returns what can be chosen about an event; `undefined` if no person decides about it. */
export const choicesAt = (
  definition: ProcessDefinition | undefined,
  event: string,
): Choices | undefined => definition?.steps.get(event)?.event?.decision?.choices

/** Returns the events of a process about which persons decide. */
const decisionsOf = (definition: ProcessDefinition): readonly string[] =>
  definition.events.filter((event) => choicesAt(definition, event) !== undefined)

/** Whether persons decide about events of a process. */
export const hasDecisions = (definition: ProcessDefinition): boolean =>
  decisionsOf(definition).length > 0

const noDecision = (definition: ProcessDefinition, event: string): string =>
  `${definition.name} has no event ${event} with ask${namesInstead(event, decisionsOf(definition), 'events with ask')}`

/**
 * Returns `step.linkTo` for a step of a run. It throws a TypeError if no person can decide with such a link. The validity of
 * an address counts from the first attempt of the step, `beganAt` (epoch ms), so that all attempts get the same address;
 * if it would be over, it counts from now.
 */
export const linksOfRun =
  (
    links: Pick<DecisionLinks, 'addressOf'>,
    definition: ProcessDefinition,
    run: RunKey,
    beganAt: number,
    now: () => number,
  ) =>
  (event: string, options: LinkOptions): string => {
    requireMembers(options, LINK_OPTIONS, 'linkTo')
    const { for: person, expiresInSeconds } = options
    const settings = definition.steps.get(event)?.event
    if (settings?.decision === undefined) throw new TypeError(noDecision(definition, event))
    if (!DecidingPerson.safeParse(person).success)
      throw new TypeError('linkTo expects for: a name or an e-mail address of a person')
    if (expiresInSeconds !== undefined && !(expiresInSeconds > 0))
      throw new TypeError('linkTo expects expiresInSeconds to be more than 0')
    const fromFirst = expiryOf(expiresInSeconds, settings.timeoutMs, beganAt)
    const expiresAt =
      fromFirst > now() ? fromFirst : expiryOf(expiresInSeconds, settings.timeoutMs, now())
    return links.addressOf({ ...runKey(run), event, person, expiresAt })
  }

export function createDecisions({ source, processes, runActions, links, now }: DecisionsDeps) {
  /** Returns what the page of a link shows. */
  async function look(link: DecisionLink | null): Promise<Decision> {
    if (link === null) return voidBecause('it is not complete, or was changed')
    if (link.expiresAt <= now()) return voidBecause('it has expired')
    const { Process, TransactionID, ReplayID, event, person } = link
    const found = await source.get(Process, TransactionID, null, { attempts: 0 })
    if (found === null) return voidBecause('what it is about no longer exists')
    const { run, items } = found
    if (run.ReplayID !== ReplayID) return voidBecause('the work was started again')
    const item = items.find(({ StepName }) => StepName === event)
    const ask = DecisionAsk.safeParse(item?.Ask)
    const choices = choicesAt(processes.get(Process), event)
    if (item?.Sender !== undefined && item.FinishedAt !== null) {
      const { KeyID, Person } = item.Sender
      const data = item.Data as Readonly<Record<string, unknown>> | null
      return {
        kind: 'decided',
        by: Person ?? KeyID,
        isOwn: KeyID === DECISION_LINK && Person === person,
        choice: choices?.Choices.find((choice) => choice === data?.[choices.Member]) ?? null,
        at: item.FinishedAt,
        title: ask.success ? ask.data.title : null,
      }
    }
    if (!goesForward(run.Status)) return voidBecause('the work has ended without a decision')
    if (item?.Status === 'Skipped' || item?.Status === 'Completed')
      return voidBecause('a decision is no longer needed')
    if (choices === undefined) return voidBecause('a decision is not asked for any more')
    const isOpen = run.Status === 'Waiting' && run.WaitingFor === `${WAITS_FOR_EVENT}${event}`
    return isOpen && ask.success
      ? { kind: 'open', person, ask: ask.data, choices }
      : { kind: 'early' }
  }

  return {
    /** Returns what the page of a token shows. Changes nothing (K3). */
    look: async (token: string): Promise<Decision> => look(await links.read(token)),

    /** Decides, unless the event was decided before or the link is void. */
    async decide(token: string, sent: SentDecision): Promise<DecisionResult> {
      const link = await links.read(token)
      const before = await look(link)
      const isChosen = (choice: boolean | string | null): boolean => String(choice) === sent.choice
      // The form may have been sent twice.
      if (before.kind === 'decided')
        return { isAccepted: before.isOwn && isChosen(before.choice), decision: before }
      if (before.kind !== 'open' || link === null) return { isAccepted: false, decision: before }
      const { Member, Choices, HasNote } = before.choices
      const choice = Choices.find(isChosen)
      if (choice === undefined) return { problem: 'Choose one of the buttons.', decision: before }
      const note = sent.note.trim()
      const data = { [Member]: choice, ...(HasNote && note !== '' && { note }) }
      // A reason is a single line.
      const reason = HasNote || note === '' ? null : visibleText(note, 500) || null
      const act: Act = {
        by: { keyId: DECISION_LINK, person: link.person },
        reason,
        ifVersion: null,
      }
      try {
        const { Process, TransactionID, ReplayID, event } = link
        const to = [Process, TransactionID, ReplayID, event] as const
        const { Item } = await runActions.signal(...to, { data, eventId: null }, act, true)
        const { Sender } = Item
        const isOwn = Sender?.KeyID === DECISION_LINK && Sender.Person === link.person
        return { isAccepted: isOwn, decision: await look(link) }
      } catch (error) {
        if (!(error instanceof IntegrationError) || errorCodes[error.code].status >= 500)
          throw error
        if (error.code === 'input_invalid')
          return { problem: note === '' ? NOTE_NEEDED : NOTE_REJECTED, decision: before }
        return { isAccepted: false, decision: await look(link) }
      }
    },

    /**
     * Creates a link for a person, and records that.
     *
     * @throws {IntegrationError} `event_not_found`, `transaction_not_found`, `transaction_not_active`, `version_moved`
     */
    async create(
      process: string,
      transactionId: string,
      replayId: number | null,
      event: string,
      { person, seconds }: { readonly person: string; readonly seconds: number | undefined },
      act: Act,
    ): Promise<CreatedLink> {
      const definition = runActions.process(process)
      const settings = definition.steps.get(event)?.event
      if (settings?.decision === undefined)
        throw new IntegrationError('event_not_found', noDecision(definition, event))
      const found = await source.get(process, transactionId, replayId, ONLY_RUN)
      if (found === null) throw notFound(process, transactionId, replayId)
      const { run } = found
      requireVersion(run, act)
      if (!goesForward(run.Status)) throw notActive()
      await links.ready()
      const expiresAt = expiryOf(seconds, settings.timeoutMs, now())
      const reason = [`for ${person}`, act.reason].filter((text) => text !== null).join(': ')
      await recordWithoutChange(source, {
        kind: 'link',
        act: { ...act, reason },
        ...runKey(run),
        Outcome: 'done',
      })
      const Url = links.addressOf({ ...runKey(run), event, person, expiresAt })
      return { Url, ExpiresAt: new Date(expiresAt).toISOString() }
    },
  }
}

const NOTE_NEEDED = 'Write a note.'
const NOTE_REJECTED = 'The note is not accepted. Make it shorter.'

const voidBecause = (why: string): Decision => ({ kind: 'void', why })
