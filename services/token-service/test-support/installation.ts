import type { KeyRing } from '@integration-host/shared/secrets/envelope'
import {
  type ServiceOptions,
  startTestService,
  type TestRedis,
  type TestService,
  testKeys,
  useTestRedis,
} from './service-fixture.ts'

/** A token service and the Redis store that it uses. */
export interface Installation {
  readonly redis: TestRedis
  readonly keys: KeyRing
  readonly service: TestService
}

/**
 * Starts a token service on Redis. With the `prefix` of an earlier installation, the service uses the store of that
 * installation. `cleanup` closes the new installation and deletes its keys.
 */
export async function startInstallation(
  cleanup: AsyncDisposableStack,
  options: Pick<ServiceOptions, 'provider'> &
    Partial<ServiceOptions> & { readonly prefix?: string },
): Promise<Installation> {
  const { keys = testKeys(), prefix, ...rest } = options
  const redis = await useTestRedis(cleanup, { keys, ...(prefix !== undefined && { prefix }) })
  const { store, authorizations } = redis
  const service = cleanup.use(await startTestService({ store, authorizations, keys, ...rest }))
  return { redis, service, keys }
}
