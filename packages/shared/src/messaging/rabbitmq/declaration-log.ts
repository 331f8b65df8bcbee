import type { Logger } from '../../observability/logger.ts'
import { inequivalenceOf } from './broker-errors.ts'

/** Logs a rejected declaration only once, although each new connection repeats the declaration. */
export interface DeclarationLog {
  rejected(error: unknown): void
  /** Called when the broker has accepted all declarations. A later rejection is logged again. */
  accepted(): void
}

export function createDeclarationLog(logger: Logger): DeclarationLog {
  /** The incompatible declaration that was logged last. */
  let logged: string | null = null
  return {
    rejected(error) {
      const differs = inequivalenceOf(error)
      const text = JSON.stringify(differs)
      if (differs === null || text === logged) return
      logged = text
      logger.error(
        {
          ...differs,
          remedy: `delete this ${differs.kind}: it is declared again (docs/rabbitmq.md)`,
        },
        'exchange or queue exists with incompatible arguments; messaging is disabled until that exchange or queue is deleted',
      )
    },
    accepted() {
      logged = null
    },
  }
}
