import { lookup } from 'node:dns/promises'
import { ProblemError } from '@integration-host/client/problem'
import { createService, type Service } from '@integration-host/client/service'
import { MetricsSummary } from '@integration-host/shared/contracts/metrics-summary'
import { HealthReport } from '@integration-host/shared/observability/health'
import { parseJson, SERVICE_LIMITS } from '@integration-host/shared/json'
import type { Replica } from '../../view/installation.ts'
import { reasonOfSilence } from './service-client.ts'

const CHECK_DEADLINE_MS = 2_500

export interface ReplicaReader {
  /** Checks every replica once. `withMetrics` also reads the summary of the metrics. */
  read(withMetrics: boolean): Promise<readonly Replica[]>
}

/**
 * Reads health and metrics of all replicas of a service. Every address to which the host name of the service resolves
 * is a replica. If the host name no longer resolves to an address, the replica with this address is dropped.
 */
export function createReplicaReader(serviceUrl: string): ReplicaReader {
  let known: ReadonlyMap<string, Replica> = new Map()

  async function readReplica(url: string, withMetrics: boolean): Promise<Replica> {
    const address = new URL(url).host
    const before = known.get(url)
    try {
      const replica = createService({ url, key: null, timeoutMs: CHECK_DEADLINE_MS })
      const { headers, text } = await replica.send('/health/ready')
      const report = HealthReport.parse(parseJson(text, SERVICE_LIMITS))
      const summary = withMetrics ? await readSummary(replica) : null
      return {
        address,
        misses: 0,
        since: before?.misses === 0 ? before.since : Date.now(),
        reason: null,
        report,
        summary: summary ?? before?.summary ?? null,
        clockOffsetMs: clockOffset(headers.get('Date')),
      }
    } catch (error) {
      const wasUp = before?.misses === 0
      return {
        address,
        misses: (before?.misses ?? 0) + 1,
        since: before === undefined || wasUp ? Date.now() : before.since,
        reason: error instanceof ProblemError ? reasonOfSilence(error) : 'no response',
        report: before?.report ?? null,
        summary: before?.summary ?? null,
        clockOffsetMs: null,
      }
    }
  }

  return {
    async read(withMetrics) {
      const urls = await replicaUrls(serviceUrl)
      const replicas = await Promise.all(
        urls.map(async (url) => [url, await readReplica(url, withMetrics)] as const),
      )
      known = new Map(replicas)
      return [...known.values()]
    },
  }
}

/** Returns the summary; `null` for a replica of an earlier release, which has none. */
async function readSummary(replica: Service): Promise<MetricsSummary | null> {
  const { status, text } = await replica.send('/metrics/summary')
  return status < 300 ? MetricsSummary.parse(parseJson(text, SERVICE_LIMITS)) : null
}

/** The header `Date` has a precision of one second, so smaller offsets are not reported. */
function clockOffset(date: string | null): number | null {
  if (date === null) return null
  const offset = Date.parse(date) - Math.floor(Date.now() / 1_000) * 1_000
  return Math.abs(offset) <= 1_000 ? 0 : offset
}

/**
 * Returns the address of each replica. With https, returns only the URL of the service. The certificate names the host
 * and not the addresses of the replicas, so the console cannot send requests to a single replica.
 */
export async function replicaUrls(serviceUrl: string): Promise<readonly string[]> {
  const url = new URL(serviceUrl)
  if (url.protocol === 'https:') return [serviceUrl]
  try {
    const addresses = await lookup(url.hostname.replaceAll(/[[\]]/g, ''), { all: true })
    if (addresses.length < 2 || url.hostname === 'localhost') return [serviceUrl]
    return addresses
      .map(({ address, family }) => `http://${family === 6 ? `[${address}]` : address}:${url.port}`)
      .toSorted()
  } catch {
    return [serviceUrl]
  }
}
