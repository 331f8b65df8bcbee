// Reads and writes secret files in the volumes of a compose stack. Each file is readable by a single user id. Logs
// contain the names of files, never their contents.
import { chmodSync, chownSync, existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs'

/**
 * User ids in the containers: 1000 in the image of this repository, 999 in the official postgres, redis and
 * rabbitmq images.
 */
export const SERVICES = 1000
export const BACKENDS = 999
/** The user id of the containers `init` and `real-provider`. No service can read files of this user. */
export const INIT = 0

/** URL of the sandbox provider's discovery document inside the compose network. */
export const SANDBOX_DISCOVERY_URL = 'http://sandbox-provider:7220/.well-known/openid_configuration'

/**
 * Name of the file in which the container `real-provider` stores why it rejected the settings. `init` runs next and
 * fails with the stored message. Compose continues even if the optional container `real-provider` has failed. Without
 * this file, `init` would then configure the sandbox.
 */
export const PROVIDER_REJECTION = 'provider_rejection'

/** Returns the content of the file; `null` if it does not exist. */
export const readSecret = (path: string): string | null =>
  existsSync(path) ? readFileSync(path, 'utf8') : null

/**
 * Writes a file that only the user `uid` can read. The write is atomic: afterwards the file at `path` is either
 * unchanged or contains all of `content`.
 */
export function writeSecret(path: string, uid: number, content: string): void {
  const before = readSecret(path)
  if (before === content) {
    // The content is unchanged. But after the volume was copied or restored, the owner and the mode of the file may be
    // wrong.
    chownSync(path, uid, uid)
    chmodSync(path, 0o400)
    return
  }
  writeFileSync(`${path}.new`, content, { mode: 0o400 })
  chownSync(`${path}.new`, uid, uid)
  renameSync(`${path}.new`, path)
  console.log(`${before === null ? 'created' : 'changed'} ${path}`)
}
