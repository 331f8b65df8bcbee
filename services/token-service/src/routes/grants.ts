import { setImmediate } from 'node:timers/promises'
import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import {
  grantOf,
  GrantLine,
  GrantReport,
  type GrantResult,
  type InvalidLine,
  isGrantLine,
  MAX_GRANT_LINE_BYTES,
  MAX_GRANT_LINES,
  parseGrantLine,
} from '@integration-host/shared/contracts/custody'
import { credentialName } from '@integration-host/shared/contracts/realm'
import { IntegrationError } from '@integration-host/shared/errors'
import { callerOf, needs, requireRealm } from '@integration-host/shared/http/request'
import { linesBody, responses } from '@integration-host/shared/http/service-app'
import { arrayElements, parseJson, trimmedJson } from '@integration-host/shared/json'
import { Secret } from '@integration-host/shared/secrets/secret'
import type { Adoption } from '../credential/adoption.ts'
import { labelsChangeOf } from '../credential/labels.ts'
import type { RouteDeps } from './route-deps.ts'

/** The size limit of a request body with grants. */
export const MAX_GRANTS_BYTES = 4 * 1_048_576

/**
 * `POST /imports/grants` adopts grants that another program obtained (credential/adoption.ts). Reads the grants from
 * NDJSON or a JSON list, and returns a result for each line. If the caller disconnects, the remaining grants are not
 * adopted.
 */
export function grantRoutes({ adoptions, takeActions }: RouteDeps): Hono {
  return new Hono().post(
    '/imports/grants',
    needs('custody:transfer'),
    describeRoute({
      operationId: 'importGrants',
      tags: ['custody'],
      summary: `Takes over up to ${MAX_GRANT_LINES} grants of another program, which must be stopped before (application/x-ndjson or a JSON list)`,
      requestBody: linesBody(GrantLine),
      responses: responses(GrantReport, 'unsupported_media_type', 'daily_actions_used'),
    }),
    async (c) => {
      const type = c.req.header('Content-Type')?.split(';')[0]?.trim().toLowerCase()
      const lines = withoutRepeatedRealms(await linesOf(type, await c.req.text()))
      for (const { grant } of lines) if (isGrantLine(grant)) requireRealm(c, grant.Realm)
      const who = callerOf(c).name
      const valid = lines.filter(({ grant }) => isGrantLine(grant)).length
      await takeActions(callerOf(c).keyId, valid)
      const { signal } = c.req.raw
      const settled = await Promise.all(
        lines.map(async ({ number, grant }) => {
          if (!isGrantLine(grant)) return { retryAfterMs: 0, result: invalid(number, grant) }
          const { Realm, RefreshToken, Environment = Realm, Label: label, Tags: tags } = grant
          const adoption = await adoptions.adopt(
            {
              realm: Realm,
              environment: Environment,
              refreshToken: new Secret(RefreshToken),
              labels: labelsChangeOf({ label, tags }),
            },
            who,
            signal,
          )
          return {
            retryAfterMs: adoption.kind === 'unavailable' ? adoption.retryAfterMs : 0,
            result: resultOf(number, credentialName(Realm), adoption),
          }
        }),
      )
      const results = settled.map(({ result }) => result)
      const count = (outcome: GrantResult['Outcome']): number =>
        results.filter(({ Outcome }) => Outcome === outcome).length
      return c.json({
        stored: count('stored'),
        already_here: count('already_here'),
        refused: count('refused'),
        unavailable: count('unavailable'),
        invalid: count('invalid'),
        retry_after: Math.ceil(Math.max(0, ...settled.map((line) => line.retryAfterMs)) / 1_000),
        results,
      } satisfies GrantReport)
    },
  )
}

interface Line {
  /** The number of the line in the body, or the position in the list, counted from 1. */
  readonly number: number
  readonly grant: GrantLine | InvalidLine
}

/**
 * Parses a body into its lines. Checks the number and the size of the lines before it parses one of them, and serves
 * other requests between groups of lines.
 *
 * @throws {IntegrationError} `invalid_request` or `unsupported_media_type` if the body as a whole is invalid. An
 * invalid line is returned instead.
 */
async function linesOf(type: string | undefined, body: string): Promise<Line[]> {
  const text = body.replace(/^\uFEFF/, '')
  const isList = type === 'application/json'
  if (!isList && type !== 'application/x-ndjson')
    throw new IntegrationError(
      'unsupported_media_type',
      'send application/x-ndjson or application/json',
    )
  const found: { readonly number: number; readonly text: string }[] = []
  let number = 0
  let unyielded = 0
  for (const line of isList ? arrayElements(text) : ndjsonLines(text)) {
    number += 1
    unyielded += line.length + 1
    if (unyielded > YIELD_AFTER) {
      unyielded = 0
      await setImmediate()
    }
    if (isList || line !== '') found.push({ number, text: line })
    if (found.length > MAX_GRANT_LINES) break
  }
  if (found.length === 0 || found.length > MAX_GRANT_LINES)
    throw new IntegrationError('invalid_request', `send 1 to ${MAX_GRANT_LINES} grants`)
  const lines: Line[] = []
  for (const line of found) {
    lines.push({
      number: line.number,
      grant: isList ? elementOf(line.text) : parseGrantLine(line.text),
    })
    if (lines.length % 16 === 0) await setImmediate()
  }
  return lines
}

/** The number of characters of lines after which other requests are served. Blank lines have one. */
const YIELD_AFTER = 65_536

/** @throws {IntegrationError} if an element is not JSON, because the whole body then is not a list. */
function elementOf(text: string): GrantLine | InvalidLine {
  if (Buffer.byteLength(text) > MAX_GRANT_LINE_BYTES) return parseGrantLine(text)
  const value = parseJson(text)
  if (value === undefined)
    throw new IntegrationError('invalid_request', 'the body must be a list of grants')
  return grantOf(value)
}

/** Returns the trimmed lines of the text. Blank lines are empty. */
function* ndjsonLines(text: string): Generator<string> {
  for (let from = 0; from <= text.length;) {
    const end = text.indexOf('\n', from)
    const to = end < 0 ? text.length : end
    yield trimmedJson(text.slice(from, to))
    from = to + 1
  }
}

/** Marks the second and each further line of a realm as invalid, because only one of its tokens can be the newest. */
function withoutRepeatedRealms(lines: readonly Line[]): Line[] {
  const firstLines = new Map<string, number>()
  return lines.map(({ number, grant }) => {
    if (!isGrantLine(grant)) return { number, grant }
    const first = firstLines.get(grant.Realm)
    if (first === undefined) {
      firstLines.set(grant.Realm, number)
      return { number, grant }
    }
    const reason = `line ${first} has a grant of the same company`
    return { number, grant: { name: credentialName(grant.Realm), reason } }
  })
}

const invalid = (Line: number, { name, reason }: InvalidLine): GrantResult => ({
  Line,
  Name: name,
  Outcome: 'invalid',
  Code: 'invalid_request',
  Reason: reason,
})

const resultOf = (Line: number, Name: string, adoption: Adoption): GrantResult => ({
  Line,
  Name,
  Outcome: adoption.kind,
  ...('version' in adoption && { Version: adoption.version }),
  ...('code' in adoption && { Code: adoption.code }),
  ...('reason' in adoption && { Reason: adoption.reason }),
  ...('traceId' in adoption && adoption.traceId !== null && { TraceId: adoption.traceId }),
})
