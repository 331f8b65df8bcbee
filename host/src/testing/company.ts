/** The companies of a test: their books at the sandbox provider, reached through the gateway. */
import type { Fault } from '@integration-host/sandbox-provider/faults'
import {
  credentialMessageId,
  CREDENTIALS_EXCHANGE,
  credentialRoutingKey,
} from '@integration-host/shared/contracts/credential'
import { credentialName, Realm, realmOf } from '@integration-host/shared/contracts/realm'
import type { MessageBus } from '@integration-host/shared/messaging/message-bus'
import type { Logger } from '@integration-host/shared/observability/logger'
import type { Repetition } from '@integration-host/shared/process/clock'
import { createCustody, type ExpiryNotice } from './custody.ts'
import { type Duration, milliseconds } from './duration.ts'
import { type CallExpectation, requireCalls } from './expected-calls.ts'
import { receivedCall, routeMatcher, type TargetCall } from './fake-target.ts'
import { createGateway } from './gateway.ts'
import { createSandbox } from './sandbox.ts'
import type { VirtualClock } from './virtual-clock.ts'
import type { WorkInFlight } from './work-in-flight.ts'

/**
 * A fault of the sandbox provider. It affects the next `calls` calls of the accounting API or of another `target`.
 * These calls get `status`, or the provider's error `fault`, or lose their connection (`drop`).
 */
export type CompanyFault = Partial<
  Pick<Fault, 'target' | 'calls' | 'status' | 'fault' | 'body' | 'headers' | 'drop'>
>

/** The options with which a company is connected. */
export interface CompanyOptions {
  /** The name of the company. Default: `Company <realm>`. */
  readonly name?: string
  /** After this time the provider ends the grant, even if the grant was refreshed. Default: `1825 days`. */
  readonly grantEndsIn?: Duration
}

/** An object with one member, which is named for the kind of the object: `{ Customer: { DisplayName: 'Ada' } }`. */
export type BookObject = Readonly<Record<string, Readonly<Record<string, unknown>>>>

/** A change that a person makes in the books of a company. */
export interface BookEdit {
  /** The kind of the object, such as `Invoice`. */
  readonly entity: string
  /** The id of the object; absent for a creation and for `Preferences`. */
  readonly id?: string
  /** Default: `update`. */
  readonly operation?: 'create' | 'update' | 'void' | 'delete'
  /** The members to change. */
  readonly change?: Readonly<Record<string, unknown>>
}

/** An object in the books of a company, as the provider has stored it. */
export interface StoredObject {
  readonly Id: string
  readonly SyncToken: string
  readonly [member: string]: unknown
}

/** A connected company. */
export interface TestCompany {
  readonly realm: string
  /** The name of the company's credential, `ACC-<realm>`. */
  readonly credential: string
  /** The calls of the steps to the accounting API, oldest first, with paths below `/v3/company/<realm>`. */
  readonly calls: readonly TargetCall[]
  /** The notices that the company has to be connected again, 90, 30 and 7 days before its grant ends. */
  readonly notices: readonly ExpiryNotice[]
  /**
   * Checks the calls of a route, such as `POST /invoice`. @throws {AssertionError} in the same cases as
   * `FakeTarget.toHaveCalled`.
   */
  toHaveCalled(route: string, expected?: CallExpectation): void
  /**
   * Creates objects in the books of the company, in the order of the list, and returns them with the members that the
   * provider computes. The calls of steps, faults and processes that react to changes are not affected. @throws {Error}
   * the provider rejects an object.
   */
  books<const Objects extends readonly BookObject[]>(
    objects: Objects,
  ): Promise<{ readonly [Index in keyof Objects]: StoredObject }>
  /**
   * Changes objects in the books of the company as a person does in QuickBooks, in the order of the list, and returns
   * them. Processes that react to changes get nothing of it: `host.change` reports a change. An edit of the entity
   * `Preferences` closes the books: `{ entity: 'Preferences', change: { AccountingInfoPrefs: { BookCloseDate } } }`.
   * @throws {Error} the provider rejects an edit.
   */
  edit(edits: readonly BookEdit[]): Promise<readonly StoredObject[]>
  /** Makes the next calls fail. */
  fault(fault: CompanyFault): Promise<void>
  /** Makes the provider reject the current access token. */
  expireToken(): Promise<void>
  /** Ends the grant, as the owner of the company does at the provider, and makes the current access token invalid. */
  disconnect(): Promise<void>
  /** Connects the company again. Runs that wait for the company then continue. */
  reconnect(): Promise<void>
}

export interface CompaniesDeps {
  readonly clock: VirtualClock
  readonly work: WorkInFlight
  readonly bus: MessageBus
  readonly logger: Logger
  /** Runs everything that is due now. */
  readonly settle: () => Promise<void>
}

/**
 * The longest lifetime of access tokens that token-service accepts. With this lifetime, a test that covers many days
 * needs few refreshes.
 */
const ACCESS_TOKEN_SECONDS = 86_400

export function createCompanies({ clock, work, bus, logger, settle }: CompaniesDeps) {
  const sandbox = createSandbox(logger, clock.now)
  const calls = new Map<string, TargetCall[]>()
  const custody = createCustody({
    sandbox,
    clock,
    async publish(kind, event) {
      if (kind === 'stored' || kind === 'refreshed')
        gateway.evict(realmOf(event.Name), kind === 'stored')
      await bus.publish({
        exchange: CREDENTIALS_EXCHANGE,
        routingKey: credentialRoutingKey(kind),
        messageId: credentialMessageId(event, kind),
        type: credentialRoutingKey(kind),
        body: event,
        mandatory: false,
      })
    },
  })
  const gateway = createGateway({
    sandbox,
    source: custody.source,
    clock,
    work,
    onCall(realm, request) {
      const call = receivedCall(request, `/v3/company/${realm}`, clock.now())
      calls.set(realm, [...(calls.get(realm) ?? []), call])
    },
  })
  let refreshes: Repetition | null = null

  /** Sends objects or edits, and returns the objects as they are stored. */
  async function stored(path: string, body: object): Promise<readonly StoredObject[]> {
    const response = (await sandbox.control('POST', path, body)) as {
      readonly objects: readonly Readonly<Record<string, StoredObject>>[]
    }
    return response.objects.flatMap((object) => Object.values(object))
  }

  /** Stores a new grant of the company, and continues the runs that wait for it. */
  async function store(realm: string, name: string): Promise<void> {
    await custody.connect(realm, name)
    refreshes ??= clock.repeat(() => custody.refreshDue())
    refreshes.soon()
    await settle()
  }

  return {
    /** Sends a call of a step through the gateway of the test host. */
    call: gateway.call,
    /** The connected companies, for the schedules of processes. */
    connected: custody.companies,
    async connect(realm: string, options: CompanyOptions): Promise<TestCompany> {
      if (!Realm.safeParse(realm).success) throw new TypeError(`${realm} is not a realm`)
      const { name = `Company ${realm}`, grantEndsIn } = options
      await sandbox.control('PUT', 'settings', {
        accessTokenSeconds: ACCESS_TOKEN_SECONDS,
        ...(grantEndsIn !== undefined && {
          grantSeconds: Math.ceil(milliseconds(grantEndsIn) / 1_000),
        }),
      })
      await store(realm, name)
      const company: TestCompany = {
        realm,
        credential: credentialName(realm),
        get calls() {
          return calls.get(realm) ?? []
        },
        get notices() {
          return custody.noticesOf(realm)
        },
        toHaveCalled: (route, expected = {}) =>
          requireCalls(
            {
              url: `the company ${realm}`,
              calls: company.calls,
              route,
              matches: routeMatcher(route),
            },
            expected,
          ),
        async books<const Objects extends readonly BookObject[]>(objects: Objects) {
          return (await stored(`companies/${realm}/objects`, { objects })) as {
            readonly [Index in keyof Objects]: StoredObject
          }
        },
        edit: (edits) => stored(`companies/${realm}/edits`, { edits }),
        async fault(fault) {
          await sandbox.control('POST', 'faults', { target: 'api', ...fault })
        },
        async expireToken() {
          await sandbox.control('POST', `realms/${realm}/expire`)
        },
        async disconnect() {
          await sandbox.control('POST', `realms/${realm}/revoke`)
          await sandbox.control('POST', `realms/${realm}/expire`)
        },
        reconnect: () => store(realm, name),
      }
      return company
    },
    async [Symbol.asyncDispose]() {
      await refreshes?.[Symbol.asyncDispose]()
    },
  }
}
