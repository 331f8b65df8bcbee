import { z } from 'zod'
import { UnsupportedBackend, type CheckResult } from './checks.ts'
import type { Logger } from './logger.ts'

const UpState = z.object({ status: z.literal('up'), since: z.iso.datetime() })
const DownState = z.object({
  status: z.enum(['connecting', 'down']),
  since: z.iso.datetime(),
  reason: z.string(),
})
const DependencyState = z.discriminatedUnion('status', [UpState.readonly(), DownState.readonly()])
export type DependencyState = z.output<typeof DependencyState>

/** The check results of the dependency that are warnings or problems, one line for each. Absent if there are none. */
const notes = z.array(z.string()).optional()

/** The body of `/health/ready`. */
export const HealthReport = z
  .object({
    status: z.enum(['ready', 'waiting']),
    dependencies: z.record(
      z.string(),
      z.discriminatedUnion('status', [UpState.extend({ notes }), DownState.extend({ notes })]),
    ),
  })
  .meta({ ref: 'Health' })
export type HealthReport = z.output<typeof HealthReport>

/** One backend or peer that a service needs, as reported by `/health/ready` and the log. */
export interface Dependency {
  readonly name: string
  readonly state: DependencyState
  up(): void
  /**
   * Reports the dependency as down. `reason` is a short text such as `ECONNREFUSED`, never the message of a driver's
   * error, which may contain a secret.
   */
  down(reason: string): void
  /**
   * Logs a check result that is not `ok`, and reports it as a note of the dependency. Repeated results of a check are
   * logged only if the verdict has changed.
   */
  logCheck(result: CheckResult): void
}

export interface Health {
  /**
   * Registers a dependency. The service is not ready until `up()` of the returned dependency is called. An `optional`
   * dependency is reported but does not affect readiness, because the service works without it.
   */
  dependency(name: string, need?: 'required' | 'optional'): Dependency
  report(): HealthReport
}

/** Tracks the dependencies of a service, and logs each change of a dependency's state in one line. */
export function createHealth(logger: Logger, now: () => Date = () => new Date()): Health {
  const dependencies = new Map<
    string,
    { readonly dependency: Dependency; readonly notes: ReadonlyMap<string, string> }
  >()
  const optional = new Set<string>()
  return {
    dependency(name, need = 'required') {
      if (need === 'optional') optional.add(name)
      let state: DependencyState = {
        status: 'connecting',
        since: now().toISOString(),
        reason: 'not connected yet',
      }
      const logged = new Map<string, CheckResult['verdict']>()
      const notesByCheck = new Map<string, string>()
      const dependency: Dependency = {
        name,
        get state() {
          return state
        },
        up() {
          if (state.status === 'up') return
          state = { status: 'up', since: now().toISOString() }
          logger.info({ dependency: name }, 'dependency is up')
        },
        logCheck({ check, verdict, found, remedy }) {
          const isNoted = verdict === 'warning' || verdict === 'problem'
          if (isNoted) notesByCheck.set(check, `${check}: ${found}. ${remedy ?? ''}`.trimEnd())
          else notesByCheck.delete(check)
          if (logged.get(check) === verdict) return
          logged.set(check, verdict)
          if (!isNoted) return
          logger.warn({ dependency: name, check, found, remedy }, 'dependency is degraded')
        },
        down(reason) {
          if (state.status === 'down' && state.reason === reason) return
          const since = state.status === 'down' ? state.since : now().toISOString()
          state = { status: 'down', since, reason }
          logger.warn({ dependency: name, reason }, 'dependency is down')
        },
      }
      dependencies.set(name, { dependency, notes: notesByCheck })
      return dependency
    },
    report() {
      const states = Object.fromEntries(
        [...dependencies].map(([name, { dependency, notes: found }]) => [
          name,
          { ...dependency.state, ...(found.size > 0 && { notes: [...found.values()] }) },
        ]),
      )
      const isReady = Object.entries(states).every(
        ([name, { status }]) => status === 'up' || optional.has(name),
      )
      return { status: isReady ? 'ready' : 'waiting', dependencies: states }
    },
  }
}

/**
 * Returns the part of an error that is safe to log: its code, or its class if the error has no code. The messages of
 * drivers' errors are left out, because they may contain secrets. For a Redis error reply, returns only the first word
 * of the message, which is the error code.
 */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return 'unknown'
  if (error instanceof UnsupportedBackend) return error.message
  const { code } = error as { code?: unknown }
  if (typeof code === 'string' && code !== '') return code
  // Node tries all addresses of a host in turn (Happy Eyeballs, RFC 8305) and collects the errors in one
  // AggregateError.
  if (error instanceof AggregateError && error.errors.length > 0) return reasonOf(error.errors[0])
  // The error of `fetch` has no code. Its cause, the error of the network, has one.
  if (error.cause instanceof Error) return reasonOf(error.cause)
  const reply = error.name === 'ReplyError' ? /^[A-Z]{3,20}(?= )/.exec(error.message) : null
  return reply !== null && reply[0] !== 'ERR' ? reply[0] : error.name
}
