import type { Secret } from '@integration-host/shared/secrets/secret'

/**
 * The client secrets in the order in which requests try them. During a rotation, the old and the new secret are
 * configured, and the provider accepts one of them or both.
 */
export interface ClientSecrets {
  readonly inOrder: readonly Secret[]
  /** Moves a secret to the front after the provider has accepted it. */
  accepted(secret: Secret): void
}

export function createClientSecrets(configured: readonly Secret[]): ClientSecrets {
  let inOrder = configured
  return {
    get inOrder() {
      return inOrder
    },
    accepted(secret) {
      inOrder = [secret, ...inOrder.filter((other) => other !== secret)]
    },
  }
}
