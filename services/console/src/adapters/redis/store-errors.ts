import { IntegrationError } from '@integration-host/shared/errors'

type Functions = Readonly<Record<string, (...parameters: never[]) => Promise<unknown>>>

/**
 * Returns a store that throws `store_unavailable` in place of the errors of Redis, whose text could contain the address
 * of the server.
 */
export const storeErrors = <Store extends { readonly [Name in keyof Store]: Functions[string] }>(
  store: Store,
): Store =>
  Object.fromEntries(
    Object.entries<Functions[string]>(store).map(([name, call]) => [
      name,
      async (...parameters: never[]) => {
        try {
          return await call(...parameters)
        } catch (cause) {
          throw new IntegrationError(
            'store_unavailable',
            'The store of the sessions (Redis) does not respond',
            {
              cause,
              retryAfterSeconds: 2,
            },
          )
        }
      },
    ]),
  ) as Store
