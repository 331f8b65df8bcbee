/**
 * Reads a file with grants from another program, one JSON object on each line. A line that is not a grant is reported
 * by its number. The line itself is never printed, because it may contain a token.
 */
import {
  type GrantLine,
  isGrantLine,
  MAX_GRANT_LINE_BYTES,
  parseGrantLine,
} from '@integration-host/shared/contracts/custody'
import { credentialName } from '@integration-host/shared/contracts/realm'
import { trimmedJson } from '@integration-host/shared/json'

export interface FileLine {
  /** The number of the line in the file, from 1. */
  readonly number: number
  readonly name: string
  readonly grant: GrantLine
}

export interface RejectedLine {
  readonly number: number
  /** The name of the credential for the realm in the line; `null` if the line names no valid realm. */
  readonly name: string | null
  readonly reason: string
}

export interface GrantsFile {
  readonly grants: readonly FileLine[]
  readonly rejected: readonly RejectedLine[]
}

/**
 * Reads all lines. If several lines name the same company, only the first one is accepted, because only one of their
 * tokens can be the newest.
 */
export async function readGrants(source: AsyncIterable<string | Uint8Array>): Promise<GrantsFile> {
  const grants: FileLine[] = []
  const rejected: RejectedLine[] = []
  const firstLines = new Map<string, number>()
  let number = 0
  for await (const bytes of linesOf(source)) {
    number += 1
    const text = bytes ? trimmedJson(bytes.toString('utf8').replace(/^\uFEFF/, '')) : undefined
    if (text === '') continue
    const grant =
      text === undefined
        ? { name: null, reason: `has more than ${MAX_GRANT_LINE_BYTES} bytes` }
        : text.startsWith('[') && number === 1
          ? { name: null, reason: 'is a JSON list: write one grant on each line (jq -c ".[]")' }
          : parseGrantLine(text)
    if (!isGrantLine(grant)) {
      rejected.push({ number, ...grant })
      continue
    }
    const name = credentialName(grant.Realm)
    const first = firstLines.get(name)
    if (first !== undefined) {
      rejected.push({ number, name, reason: `line ${first} has a grant of the same company` })
      continue
    }
    firstLines.set(name, number)
    grants.push({ number, name, grant })
  }
  return { grants, rejected }
}

/**
 * Yields the lines, and `null` in place of a line that is too long. Only a part of such a long line is kept in memory.
 */
async function* linesOf(
  source: AsyncIterable<string | Uint8Array>,
): AsyncGenerator<Buffer | null, void> {
  let parts: Buffer[] = []
  let size = 0
  const add = (part: Buffer): void => {
    size += part.length
    if (size <= MAX_LINE_BYTES) parts.push(part)
  }
  const take = (): Buffer | null => {
    const line = size > MAX_LINE_BYTES ? null : Buffer.concat(parts)
    parts = []
    size = 0
    return line
  }
  for await (const chunk of source) {
    let rest = Buffer.from(chunk)
    for (let end = rest.indexOf('\n'); end !== -1; end = rest.indexOf('\n')) {
      add(rest.subarray(0, end))
      yield take()
      rest = rest.subarray(end + 1)
    }
    add(rest)
  }
  if (size > 0) yield take()
}

/** A byte order mark, a carriage return and indentation do not count towards the limit of a line. */
const MAX_LINE_BYTES = MAX_GRANT_LINE_BYTES + 1_024
