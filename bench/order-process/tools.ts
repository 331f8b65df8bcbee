/** The tools of the steps: an HTTP client, and a function that writes files. */
import { randomUUID } from 'node:crypto'
import { mkdir, open, rename } from 'node:fs/promises'
import { dirname } from 'node:path'
import { disablePretenuring } from '@integration-host/shared/process/lifecycle'
import { Agent, request } from 'undici'
import { createThreadedFiles } from '../../services/coordinator/src/adapters/files/threaded-files.ts'
import { createHttpCaller } from '../../services/coordinator/src/adapters/http/http-call.ts'
import { StepAbort } from '../../services/coordinator/src/step/step-abort.ts'

export interface Tools {
  /** Returns the parsed body of the response. Rejects if the status is not 2xx. */
  readonly get: (url: string) => Promise<unknown>
  /** Writes a file durably: flushes the file with fsync, renames the file, then flushes the folder. */
  readonly writeFile: (path: string, content: string) => Promise<void>
}

/** Returns the tools that users of the other engines have: undici, and the promises of `node:fs`. */
export function usualTools(): Tools {
  const agent = new Agent({ connections: 128 })
  let folderMade: Promise<unknown> | undefined
  return {
    async get(url) {
      const { statusCode, body } = await request(url, { dispatcher: agent })
      const json = await body.json()
      requireSuccess(url, statusCode)
      return json
    },
    async writeFile(path, content) {
      const folder = dirname(path) // all files have the same folder
      await (folderMade ??= mkdir(folder, { recursive: true }))
      const temporary = `${path}.${randomUUID().slice(0, 8)}.tmp`
      await using file = await open(temporary, 'wx')
      await file.writeFile(content)
      await file.sync()
      await rename(temporary, path)
      await using place = await open(folder, 'r')
      await place.sync()
    },
  }
}

const CALL_MS = 60_000

/**
 * Returns the coordinator's HTTP client and file writer. Also sets the coordinator's V8 option for this OS process. Without
 * all three, the bare programs would not be bounds for the coordinator.
 */
export function coordinatorTools(): Tools {
  disablePretenuring()
  const { call } = createHttpCaller()
  const files = createThreadedFiles()
  return {
    async get(url) {
      const target = { method: 'GET', url: new URL(url), headers: {}, body: null }
      const outcome = await call(target, { abort: new StepAbort(), timeoutMs: CALL_MS })
      if (outcome.kind !== 'answered') throw new Error(`${url}: ${outcome.kind}`)
      requireSuccess(url, outcome.status)
      return JSON.parse(outcome.body) as unknown
    },
    writeFile: (path, content) => files.writeAtomic(path, content),
  }
}

function requireSuccess(url: string, status: number): void {
  if (status < 200 || status >= 300) throw new Error(`${url} responded with ${status}`)
}
