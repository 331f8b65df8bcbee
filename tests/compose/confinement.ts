import { expect } from './check.ts'
import { ONE_SHOTS, type Stack } from './stack.ts'

/**
 * Checks the output of `docker inspect` for each container: the container has no privileges, its resources are
 * limited, and the output shows no secret.
 */
export async function isConfined(stack: Stack): Promise<void> {
  const { text, containers } = await stack.inspect()
  const violations = containers.flatMap(({ Name, Config, HostConfig: limits }) => {
    const isOneShot = ONE_SHOTS.includes(Config.Labels['com.docker.compose.service'] ?? '')
    const wanted: Record<string, boolean> = {
      'drops every capability': limits.CapDrop?.includes('ALL') === true,
      'adds no capability': isOneShot || limits.CapAdd === null,
      'cannot gain privileges': limits.SecurityOpt?.includes('no-new-privileges:true') === true,
      'writes to volumes only': limits.ReadonlyRootfs,
      'publishes ports on the loopback interface only': Object.values(limits.PortBindings ?? {})
        .flat()
        .every(({ HostIp }) => HostIp === '127.0.0.1'),
      'is not root': isOneShot || !['', 'root', '0'].includes(Config.User),
      'has limits for memory, processor and processes':
        limits.Memory > 0 && limits.NanoCpus > 0 && (limits.PidsLimit ?? 0) > 0,
    }
    return Object.keys(wanted).flatMap((claim) =>
      wanted[claim] ? [] : [`${Name}: violated: ${claim}`],
    )
  })
  expect(violations.length === 0, violations.join('\n'))
  const names = ['service_api_key', 'credential_keys', 'client_secret', 'amqp_url', 'redis_url']
  for (const name of names) {
    const secret = await stack.read('token-service', `/secrets/${name}`)
    expect(secret.length >= 32 && !text.includes(secret), `docker inspect shows ${name}`)
  }
}
