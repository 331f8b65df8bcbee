// `npm run pin-images`: writes the current digest of each base image into deploy/pinned-images.yml, as
// `name:tag@sha256:…`. Needs Docker with Buildx and access to the registry.
import { execFileSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const FILE = join(import.meta.dirname, '../deploy/pinned-images.yml')
const REFERENCE = /^( *(?:image|NODE_IMAGE): +)([^\s@#]+)(?:@sha256:[0-9a-f]{64})?$/gm

/** Returns `text` with each image pinned to the digest that `digestOf` returns for its name and tag. */
export const pinned = (text: string, digestOf: (image: string) => string): string =>
  text.replace(REFERENCE, (_, key: string, image: string) => `${key}${image}@${digestOf(image)}`)

/**
 * Returns the digest of an image's manifest list, which covers all platforms.
 *
 * @throws {Error} if the registry does not have the image or cannot be reached
 */
function digestInRegistry(image: string): string {
  const args = ['buildx', 'imagetools', 'inspect', '--format', '{{json .Manifest}}', image]
  const { digest } = JSON.parse(execFileSync('docker', args, { encoding: 'utf8' })) as {
    digest: unknown
  }
  if (typeof digest !== 'string' || !/^sha256:[0-9a-f]{64}$/.test(digest))
    throw new Error(`the registry returned no digest for ${image}`)
  console.log(`${image}@${digest}`)
  return digest
}

if (import.meta.main) writeFileSync(FILE, pinned(readFileSync(FILE, 'utf8'), digestInRegistry))
