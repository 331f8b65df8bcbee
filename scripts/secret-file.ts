// Files in the volumes of a compose stack, each for one user of a container. Names are printed, contents never.
import { chmodSync, chownSync, existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs'

/** User ids inside the images: our own, and the one that the official postgres, redis and rabbitmq images share. */
export const SERVICES = 1000
export const BACKENDS = 999

/** Where the services of the stack find the sandbox provider's document. */
export const SANDBOX_DISCOVERY_URL = 'http://sandbox-provider:7220/.well-known/openid_configuration'

/**
 * Why the real provider was refused, for the `init` that comes next: Compose goes on after an optional dependency that
 * failed, and the sandbox must not take the place of a provider that was asked for.
 */
export const REFUSED_PROVIDER = 'refused_provider'

/** What the file holds; null when it is not there. */
export const readSecret = (path: string): string | null =>
  existsSync(path) ? readFileSync(path, 'utf8') : null

/** Makes `content` what only the user `uid` can read at `path`: whole, or as it was before. */
export function writeSecret(path: string, uid: number, content: string): void {
  const before = readSecret(path)
  if (before === content) {
    // A volume that was copied or restored may have lost whose they are.
    chownSync(path, uid, uid)
    chmodSync(path, 0o400)
    return
  }
  writeFileSync(`${path}.new`, content, { mode: 0o400 })
  chownSync(`${path}.new`, uid, uid)
  renameSync(`${path}.new`, path)
  console.log(`${before === null ? 'created' : 'changed'} ${path}`)
}
