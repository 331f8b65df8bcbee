import type { Engine, EngineName, EngineSettings, StartEngine } from './engine.ts'

// Only the measured engine is imported, so that modules of other engines use no memory and no processor time.
const engines: Record<EngineName, () => Promise<{ start: StartEngine }>> = {
  'behind-http': () => import('./engines/behind-http.ts'),
  bullmq: () => import('./engines/bullmq.ts'),
  commits: () => import('./engines/commits.ts'),
  coordinator: () => import('./engines/coordinator.ts'),
  dbos: () => import('./engines/dbos.ts'),
  'graphile-worker': () => import('./engines/graphile-worker.ts'),
  messages: () => import('./engines/messages.ts'),
  none: () => import('./engines/none.ts'),
  'pg-boss': () => import('./engines/pg-boss.ts'),
  restate: () => import('./engines/restate.ts'),
  'same-rows': () => import('./engines/same-rows.ts'),
}

/** Starts an engine in this process. Resolves when the engine accepts transactions. */
export async function startEngine(name: EngineName, settings: EngineSettings): Promise<Engine> {
  const { start } = await engines[name]()
  return start(settings)
}
