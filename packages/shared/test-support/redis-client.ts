import { createHealth, type DependencyState } from '../src/observability/health.ts'
import { createLogger } from '../src/observability/logger.ts'
import { connectRedis, type RedisConnection } from '../src/redis/connection.ts'
import { Secret } from '../src/secrets/secret.ts'
import type { TlsFiles } from '../src/tls/tls-files.ts'

export interface TestConnection extends RedisConnection {
  /** The state of the dependency as `/health/ready` shows it. */
  state(): DependencyState | undefined
  /** Returns the reason for which the dependency is down; empty while it is not down. */
  reason(): string
  /** The log lines that the connection has written so far. */
  readonly lines: readonly Record<string, unknown>[]
}

/** Opens a Redis connection as a service does. */
export function openRedis(url: string, tls?: TlsFiles): TestConnection {
  const lines: Record<string, unknown>[] = []
  const write = (line: string): void => void lines.push(JSON.parse(line) as Record<string, unknown>)
  const health = createHealth(createLogger('test', 'info', { write }))
  const dependency = health.dependency('redis')
  const connection = connectRedis(new Secret(url), { name: 'test', dependency, tls })
  return {
    ...connection,
    lines,
    state: () => dependency.state,
    reason: () => (dependency.state.status === 'down' ? dependency.state.reason : ''),
    [Symbol.asyncDispose]: () => connection[Symbol.asyncDispose](),
  }
}
