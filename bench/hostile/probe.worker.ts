/**
 * Sends one small call after the other. Reports, for the calls since the last report, the longest wait and the most
 * processor time that the process used during one of them.
 */
import { parentPort, workerData } from 'node:worker_threads'
import { setTimeout as delay } from 'node:timers/promises'
import { processorMs } from '../support/process-usage.ts'

export interface Waits {
  readonly waitMs: number
  readonly busyMs: number
}

const { url, pid } = workerData as { readonly url: string; readonly pid: number }
let waits: Waits = { waitMs: 0, busyMs: 0 }
parentPort?.on('message', () => {
  parentPort?.postMessage(waits)
  waits = { waitMs: 0, busyMs: 0 }
})
for (;;) {
  const sentAt = performance.now()
  const before = processorMs(pid)
  await (await fetch(url)).text()
  waits = {
    waitMs: Math.max(waits.waitMs, performance.now() - sentAt),
    busyMs: Math.max(waits.busyMs, processorMs(pid) - before),
  }
  await delay(1)
}
