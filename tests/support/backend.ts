export const backendKinds = ['postgres', 'redis', 'rabbitmq'] as const

export type BackendKind = (typeof backendKinds)[number]

/** A server that the tests may use, reachable at `url` by a user who may create databases, queues and keys. */
export interface Backend {
  readonly url: string
  /** Where it came from, for the one line that each run prints. */
  readonly origin: string
}

export interface StartedBackends {
  readonly backends: Partial<Record<BackendKind, Backend>>
  readonly stop: () => Promise<void>
}

export const labels: Record<BackendKind, string> = {
  postgres: 'PostgreSQL',
  redis: 'Redis',
  rabbitmq: 'RabbitMQ',
}
