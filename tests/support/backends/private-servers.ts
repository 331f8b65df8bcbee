import { labels, type Backend, type BackendKind, type StartedBackends } from './backend.ts'
import { reasonOf } from './probes.ts'
import { serverFolders } from './server-binaries.ts'
import { setUpServer, startServer } from './server-commands.ts'
import { ServerGroup } from './server-group.ts'

/**
 * Starts servers on free loopback ports. Only this test run uses these servers.
 *
 * @throws {Error} with a reason for each server that is not installed or did not start
 */
export async function startPrivateServers(kinds: readonly BackendKind[]): Promise<StartedBackends> {
  const folders = await serverFolders(kinds)
  const group = new ServerGroup()
  const started = await Promise.allSettled(
    kinds.map(async (kind): Promise<readonly [BackendKind, Backend]> => {
      const setup = await setUpServer(kind, folders.get(kind) ?? '', group)
      await startServer(kind, setup, group)
      return [kind, { url: setup.url, origin: `started on ${new URL(setup.url).host}` }]
    }),
  )
  const failures = started.flatMap((one, index) =>
    one.status === 'rejected'
      ? [`${labels[kinds[index] ?? 'redis']}: ${reasonOf(one.reason)}`]
      : [],
  )
  if (failures.length > 0) {
    await group.stop()
    throw new Error(failures.join('; '))
  }
  const backends = started.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []))
  return { backends: Object.fromEntries(backends), stop: () => group.stop() }
}
