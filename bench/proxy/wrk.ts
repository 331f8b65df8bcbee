import { spawn, spawnSync } from 'node:child_process'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import type { LoadResult } from '../support/load.ts'

const SCRIPT = fileURLToPath(new URL('load.lua', import.meta.url))

export const isWrkInstalled = (): boolean => spawnSync('wrk', ['-v']).error === undefined

export interface WrkLoad {
  readonly connections: number
  readonly seconds: number
  /** Number of realms. */
  readonly realms: number
  readonly key: string
  /** The method of each request, its path, in which `{realm}` is replaced with the number of a realm, and the body. */
  readonly request: { readonly method: string; readonly path: string; readonly body?: string }
}

/** Runs wrk on a proxy for one round. A response that is not 2xx ends the benchmark. */
export async function wrk(url: string, load: WrkLoad): Promise<LoadResult> {
  const args = ['-t1', `-c${load.connections}`, `-d${load.seconds}s`, '-s', SCRIPT, url]
  const child = spawn('wrk', args, {
    env: {
      PATH: process.env['PATH'],
      REALMS: String(load.realms),
      KEY: load.key,
      METHOD: load.request.method,
      REQUEST_PATH: load.request.path,
      BODY_BYTES: String(load.request.body?.length ?? 0),
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const output = await text(child.stdout)
  const line = output.split('\n').find((each) => each.startsWith('{')) ?? ''
  const { requests, micros, p50, p99, errors } = JSON.parse(line) as Record<string, number>
  if (requests === undefined || micros === undefined || errors !== 0)
    throw new Error(`wrk on ${url}: ${output}`)
  return {
    requests,
    perSecond: (requests / micros) * 1e6,
    p50Ms: (p50 ?? Number.NaN) / 1_000,
    p99Ms: (p99 ?? Number.NaN) / 1_000,
  }
}
