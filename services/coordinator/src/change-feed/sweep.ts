/**
 * The built-in process that reads the change feed of each connected company, and publishes the changes as provider
 * events. A change has the same event id in the change feed and in a webhook, so a sweep starts runs only for changes
 * whose webhooks were missed.
 *
 * W1  The cursor of the company moves only after the broker has confirmed all events before it. A sweep that is
 *     interrupted is repeated from the same cursor.
 * W2  A sweep begins some minutes before the cursor, because the provider may report a change a little later.
 * W3  The calls are sent through the gateway, and their responses are classified like those of steps. So a sweep
 *     respects the rate limits of its company, and waits while the credential must be renewed.
 */
import { credentialName } from '@integration-host/shared/contracts/realm'
import {
  listEntities,
  providerEntities,
  type ProviderEvent,
  providerRoutingKey,
} from '@integration-host/shared/contracts/provider-event'
import { failed, outcomeOfError, retried } from '../step/built-in.ts'
import { defineProcess } from '../step/define-process.ts'
import type { ProcessDefinition } from '../step/definition.ts'
import { type EarlyOutcome, judgeCall, shortText } from '../step/judge-call.ts'
import type { StepOutcome } from '../run/progress.ts'
import { sendCall, type SendDeps } from '../step/send-call.ts'
import type { Claim } from '../run/transaction-source.ts'
import type { ChangeCursors } from './change-cursors.ts'
import {
  eventsOf,
  FEED_OPERATIONS,
  type FeedDocument,
  readChangeData,
  readQueried,
} from './feed-document.ts'
import { type FeedQuery, type FeedReply, type FeedRequests, readChanges } from './read-changes.ts'
import type { EntryProof } from '../entry/prove-entries.ts'
import type { Subscriptions } from '../change/subscriptions.ts'

export interface ChangeFeedDeps {
  readonly cursors: Pick<ChangeCursors, 'beginCursor' | 'moveCursor'>
  readonly subscriptions: Pick<Subscriptions, 'wantedChanges'>
  /** Returns the routing keys of the processes of this coordinator, which the store may not contain yet. */
  readonly ownKeys: () => readonly string[]
  /** Resolves when the broker has confirmed the event. @throws {IntegrationError} `broker_unavailable` */
  readonly publish: (event: ProviderEvent) => Promise<void>
  readonly proof: Pick<EntryProof, 'compare' | 'entities' | 'finish' | 'readFrom'>
  /** Returns epoch ms. */
  readonly now: () => number
}

export const CHANGE_FEED = 'ChangeFeed'
/** The schedule that begins the daily sweep of each company. */
export const SWEEP_SCHEDULE = 'sweep'
const STEP = 'read'
/** How far before the cursor every sweep begins. The changes in this period are read again. */
const OVERLAP_MS = 300_000
/** The maximum number of concurrent sweeps. It bounds the memory, because responses contain whole objects. */
const MAX_SWEEPS = 4
const MAX_RESPONSE_BYTES = 8 * 1_048_576
/** The maximum number of published events whose confirms are still missing. */
const PUBLISH_BATCH = 100

/** The error classes of a rejected request. The provider may accept the same request for other entities. */
const REJECTIONS: ReadonlySet<string> = new Set(['http_400', 'provider_fault'])

/** Thrown to end a sweep if one of its calls fails. `outcome` is the outcome of the step. */
class SweepEnded extends Error {
  readonly outcome: EarlyOutcome
  constructor(outcome: EarlyOutcome) {
    super('the sweep has ended')
    this.outcome = outcome
  }
}

/** Builds the process `ChangeFeed`. */
export function createChangeFeed({
  cursors,
  subscriptions,
  ownKeys,
  publish,
  proof,
  now,
}: ChangeFeedDeps): ProcessDefinition {
  const definition = defineProcess(CHANGE_FEED, {
    concurrency: MAX_SWEEPS,
    stepTimeoutSeconds: 1_200,
    retry: { maxAttempts: 8, baseMs: 30_000, capMs: 900_000 },
    // Completed runs are kept only for a short time, because the cursor and not the run stores how far the change feed
    // of a company was read.
    retention: { completedDays: 7 },
    schedules: [{ name: SWEEP_SCHEDULE, cron: '17 3 * * *', each: 'company' }],
  }).step(STEP, (step) => step.complete())

  async function sweep(realm: string, requests: FeedRequests): Promise<StepOutcome> {
    const cursor = await cursors.beginCursor(realm)
    const wanted = new Set([...ownKeys(), ...(await subscriptions.wantedChanges())])
    const withEntries = await proof.entities(realm)
    const entities = providerEntities.filter(
      (Entity) =>
        withEntries.includes(Entity) ||
        FEED_OPERATIONS.some((Operation) =>
          wanted.has(providerRoutingKey({ Provider: 'intuit', Entity, Operation })),
        ),
    )
    const begin = Date.parse(cursor.position) - (cursor.sweptAt === null ? 0 : OVERLAP_MS)
    const from = await proof.readFrom(realm, begin, now())
    const published = new Set<string>()
    /** The time of the earliest change that the next sweep must read again. */
    let deferredFrom = Infinity
    /** The ids of the entries whose objects were read, and could not be compared. */
    const seen = new Set<string>()
    const { until, unread, incomplete, error } = await readChanges(requests, {
      entities,
      since: from,
      now: now(),
      async onObjects(objects) {
        const left = await proof.compare(realm, objects, now())
        deferredFrom = Math.min(deferredFrom, left.readAgainFrom ?? Infinity)
        for (const id of left.seen) seen.add(id)
        const events = objects
          // Changes before the cursor were published by an earlier sweep.
          .filter(({ changedAt }) => changedAt >= Math.floor(begin / 1_000) * 1_000)
          .flatMap((object) => eventsOf(realm, object, begin))
          .filter((event) => wanted.has(providerRoutingKey(event)) && !published.has(event.Id))
        for (let start = 0; start < events.length; start += PUBLISH_BATCH)
          await Promise.all(events.slice(start, start + PUBLISH_BATCH).map(publish))
        for (const { Id } of events) published.add(Id)
      },
    })
    if (error !== null) return failed('change_feed_rejected', error)
    if (entities.length > 0) await proof.finish(realm, { from, until, except: incomplete, seen })
    const result = {
      position: new Date(Math.min(until, deferredFrom)).toISOString(),
      events: published.size,
      incomplete: unread.length === 0 ? null : shortText(unread.join('; ')),
    }
    await cursors.moveCursor(realm, result)
    const data = { since: new Date(begin).toISOString(), ...result }
    return { kind: 'completed', response: null, data, endsRun: true }
  }

  return {
    ...definition,
    async runBuiltIn(claim, deps) {
      const realm = claim.run.Realm
      if (realm === null) return failed('realm_missing', 'the run has no Realm')
      try {
        return await sweep(realm, requestsOf(realm, { definition, claim, deps }))
      } catch (error) {
        return error instanceof SweepEnded ? error.outcome : outcomeOfError(error)
      }
    },
  }
}

interface SweepCalls {
  readonly definition: ProcessDefinition
  readonly claim: Claim
  readonly deps: SendDeps
}

/** Returns the requests of a sweep, which are sent through the gateway. */
function requestsOf(realm: string, { definition, claim, deps }: SweepCalls): FeedRequests {
  const credential = credentialName(realm)

  /** @throws {SweepEnded} if the call has failed and must be repeated later. */
  async function get(
    path: string,
    query: Readonly<Record<string, string>>,
    read: (body: string) => FeedDocument | null,
  ): Promise<FeedReply> {
    const request = { url: `/v3/company/${realm}/${path}`, query }
    const sent = await sendCall(
      {
        process: definition,
        run: claim.run,
        request,
        options: { credential },
        callKey: null,
        maxBytes: MAX_RESPONSE_BYTES,
        isEnded: () => false,
      },
      deps,
    )
    if ('end' in sent) throw new SweepEnded(sent.end)
    const { outcome, what, owner } = sent
    if (outcome.kind === 'too_large' && outcome.status < 300) return { kind: 'too_large' }
    const judged = await judgeCall(outcome, what, owner, deps)
    if ('kind' in judged) {
      // A rejection concerns only one entity. Any other failure concerns the whole company, so it ends the sweep and
      // nothing counts as read.
      if (judged.kind === 'failed' && REJECTIONS.has(judged.errorClass))
        return { kind: 'rejected', error: judged.error }
      throw new SweepEnded(judged)
    }
    const document = read(judged.body)
    if (document !== null) return { kind: 'read', document }
    const error = shortText(`${what} responded with ${judged.status} and another document`)
    throw new SweepEnded(retried('response_invalid', error))
  }

  return {
    changes: (entities, since) =>
      get('cdc', { entities: entities.join(','), changedSince: timeText(since) }, readChangeData),
    query: (query) => get('query', { query: statementOf(query) }, readQueried),
  }
}

/** Returns a time in the provider's format, without fractions of a second. */
const timeText = (ms: number): string => `${new Date(ms).toISOString().slice(0, 19)}Z`

function statementOf({ entity, from, to, start, limit }: FeedQuery): string {
  const conditions = [
    ...(listEntities.has(entity) ? ['Active in (true, false)'] : []),
    `MetaData.LastUpdatedTime >= '${timeText(from)}'`,
    ...(to === null ? [] : [`MetaData.LastUpdatedTime < '${timeText(to)}'`]),
  ]
  return (
    `select * from ${entity} where ${conditions.join(' and ')} ` +
    `orderby MetaData.LastUpdatedTime startposition ${start} maxresults ${limit}`
  )
}
