export const backendKinds = ['postgres', 'redis', 'rabbitmq'] as const

export type BackendKind = (typeof backendKinds)[number]

/** A server that the tests may use. The user in `url` has permission to create databases, queues and keys. */
export interface Backend {
  readonly url: string
  /** How the server was found. This text is printed at the start of each run. */
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
