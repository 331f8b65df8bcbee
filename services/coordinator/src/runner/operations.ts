import type { QueueTransaction } from '@integration-host/shared/contracts/transaction'
import { IntegrationError } from '@integration-host/shared/errors'
import type { ProcessDefinition } from '../process/definition.ts'
import type { Header } from '../transaction/header.ts'
import type { QueueResult, TransactionSource } from '../transaction/transaction-source.ts'
import type { Announcer } from './announcer.ts'
import { outlineOf, type Runner } from './runner.ts'

/** What an operator or another system can do with transactions. What it resolves with is durable. */
export interface Operations {
  queue(process: string, transactions: readonly QueueTransaction[]): Promise<readonly QueueResult[]>
  replay(process: string, transactionId: string, fromStep: string | null): Promise<Header>
  resume(process: string, transactionId: string, replayId: number | null): Promise<Header>
  cancel(process: string, transactionId: string, replayId: number | null): Promise<Header>
  setPaused(process: string, isPaused: boolean): Promise<void>
  /** A credential can be used again: what waits for it goes on. */
  wake(credential: string): Promise<void>
  /** @throws {IntegrationError} `process_not_found`. */
  process(name: string): ProcessDefinition
}

export interface OperationsDeps {
  readonly source: TransactionSource
  readonly processes: ReadonlyMap<string, ProcessDefinition>
  readonly announcer: Announcer
  readonly runner: Runner
}

const WAKE_GROUP = 200

export function createOperations(deps: OperationsDeps): Operations {
  const { source, processes, announcer, runner } = deps
  const process = (name: string): ProcessDefinition => {
    const definition = processes.get(name)
    if (definition === undefined)
      throw new IntegrationError('process_not_found', 'no process of this name is loaded')
    return definition
  }
  return {
    process,
    async queue(name, transactions) {
      const results = await source.queue(outlineOf(process(name)), transactions)
      announcer.announceAll(
        results.flatMap((result) => (result.outcome === 'queued' ? [result.header] : [])),
      )
      return results
    },
    async replay(name, transactionId, fromStep) {
      const definition = process(name)
      if (fromStep !== null && !definition.steps.has(fromStep))
        throw new IntegrationError('step_not_found', 'fromStep is not a step of the process')
      const header = await source.replay(outlineOf(definition), transactionId, fromStep)
      announcer.announceAll([header])
      return header
    },
    async resume(name, transactionId, replayId) {
      const header = await source.resume(process(name).name, transactionId, replayId)
      announcer.announceAll([header])
      return header
    },
    async cancel(name, transactionId, replayId) {
      const header = await source.cancel(process(name).name, transactionId, replayId)
      runner.abort(header)
      announcer.announceAll([header])
      return header
    },
    async setPaused(name, isPaused) {
      await source.setPaused(process(name).name, isPaused)
      runner.setPaused(await source.paused())
    },
    async wake(credential) {
      for (;;) {
        const woken = await source.wake(credential, WAKE_GROUP)
        await Promise.all(woken.map((header) => announcer.announce(header)))
        if (woken.length < WAKE_GROUP) return
      }
    },
  }
}
