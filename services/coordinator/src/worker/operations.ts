import type { QueueTransaction } from '@integration-host/shared/contracts/transaction'
import { IntegrationError } from '@integration-host/shared/errors'
import { outlineOf, type ProcessDefinition } from '../process/definition.ts'
import type { Run } from '../transaction/run.ts'
import type { QueueResult, TransactionSource } from '../transaction/transaction-source.ts'
import type { StepsInFlight } from './steps-in-flight.ts'
import type { TransitionPublisher } from './transition-publisher.ts'
import type { Worker } from './worker.ts'

/** The operations that the HTTP API offers on transactions. A result is durable when its promise resolves. */
export interface Operations {
  queue(process: string, transactions: readonly QueueTransaction[]): Promise<readonly QueueResult[]>
  replay(process: string, transactionId: string, fromStep: string | null): Promise<Run>
  resume(process: string, transactionId: string, replayId: number | null): Promise<Run>
  cancel(process: string, transactionId: string, replayId: number | null): Promise<Run>
  setPaused(process: string, isPaused: boolean): Promise<void>
  /** Makes the runs that wait for a credential due again. */
  wake(credential: string): Promise<void>
  /** @throws {IntegrationError} `process_not_found` if no process of this name is loaded. */
  process(name: string): ProcessDefinition
}

export interface OperationsDeps {
  readonly source: TransactionSource
  readonly processes: ReadonlyMap<string, ProcessDefinition>
  readonly publisher: Pick<TransitionPublisher, 'publishStep' | 'publishSteps'>
  readonly stepsInFlight: Pick<StepsInFlight, 'abortCancelled'>
  readonly worker: Pick<Worker, 'setPaused'>
}

const WAKE_BATCH = 200

export function createOperations(deps: OperationsDeps): Operations {
  const { source, processes, publisher, stepsInFlight, worker } = deps
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
      publisher.publishSteps(
        results.flatMap((result) => (result.outcome === 'queued' ? [result.run] : [])),
      )
      return results
    },
    async replay(name, transactionId, fromStep) {
      const definition = process(name)
      if (fromStep !== null && !definition.steps.has(fromStep))
        throw new IntegrationError('step_not_found', 'fromStep is not a step of the process')
      const run = await source.replay(outlineOf(definition), transactionId, fromStep)
      publisher.publishSteps([run])
      return run
    },
    async resume(name, transactionId, replayId) {
      const run = await source.resume(process(name).name, transactionId, replayId)
      publisher.publishSteps([run])
      return run
    },
    async cancel(name, transactionId, replayId) {
      const run = await source.cancel(process(name).name, transactionId, replayId)
      stepsInFlight.abortCancelled(run)
      publisher.publishSteps([run])
      return run
    },
    async setPaused(name, isPaused) {
      await source.setPaused(process(name).name, isPaused)
      worker.setPaused(await source.paused())
    },
    async wake(credential) {
      for (;;) {
        const woken = await source.wake(credential, WAKE_BATCH)
        await Promise.all(woken.map((run) => publisher.publishStep(run)))
        if (woken.length < WAKE_BATCH) return
      }
    },
  }
}
