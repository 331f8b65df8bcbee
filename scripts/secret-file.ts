// Reads and writes secret files in the volumes of a compose stack. Each is readable by one user id. Logs names, never contents.
import { chmodSync, chownSync, existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs'

/** User ids in the containers: that of our image, and the one that the official postgres, redis and rabbitmq images share. */
export const SERVICES = 1000
export const BACKENDS = 999
/** The user of `init` and `real-provider`: no service can read its files. */
export const INIT = 0

/** URL of the sandbox provider's discovery document, as the services of the stack reach it. */
export const SANDBOX_DISCOVERY_URL = 'http://sandbox-provider:7220/.well-known/openid_configuration'

/**
 * File in which `real-provider` stores why it rejected the settings; `init`, which runs next, then fails with that message. Compose
 * continues after an optional dependency failed, so without this file `init` would configure the sandbox instead.
 */
export const PROVIDER_REJECTION = 'provider_rejection'

/** Returns the content of the file; `null` if it does not exist. */
export const readSecret = (path: string): string | null =>
  existsSync(path) ? readFileSync(path, 'utf8') : null

/** Writes a file that only the user `uid` can read. Atomic: afterwards `path` holds all of `content` or is unchanged. */
export function writeSecret(path: string, uid: number, content: string): void {
  const before = readSecret(path)
  if (before === content) {
    // The content is right, but copying or restoring a volume may have changed owner and mode.
    chownSync(path, uid, uid)
    chmodSync(path, 0o400)
    return
  }
  writeFileSync(`${path}.new`, content, { mode: 0o400 })
  chownSync(`${path}.new`, uid, uid)
  renameSync(`${path}.new`, path)
  console.log(`${before === null ? 'created' : 'changed'} ${path}`)
}
