// `npm run pin-images`: writes the current digest of each base image into Dockerfile and docker-compose.yml, as
// `name:tag@sha256:…`. Needs Docker with Buildx and access to the registry. `npm run pin-images -- --check` changes
// no file and fails if a digest is missing.
import { execFileSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const FILES = ['Dockerfile', 'docker-compose.yml'] as const
/** The image that is built from this repository. It has no digest in a registry. */
const OWN_IMAGE = 'integration-host'
const REFERENCE = /^(FROM +|\s*image: +)([^\s@#]+)(?:@(sha256:[0-9a-f]{64}))?/gm

export interface ImageReference {
  /** Name and tag of the image, such as `redis:8`. */
  readonly image: string
  /** `null` if the reference has no digest. */
  readonly digest: string | null
}

/**
 * Returns the images that a Dockerfile or compose file refers to, except the image that is built from this
 * repository.
 */
export const imagesIn = (text: string): readonly ImageReference[] =>
  [...text.matchAll(REFERENCE)].flatMap(([, , image = '', digest = null]) =>
    image === OWN_IMAGE ? [] : [{ image, digest }],
  )

/** Returns `text` with each reference pinned to the digest that `digestOf` returns for its name and tag. */
export const pinned = (text: string, digestOf: (image: string) => string): string =>
  text.replace(REFERENCE, (reference, keyword: string, image: string) =>
    image === OWN_IMAGE ? reference : `${keyword}${image}@${digestOf(image)}`,
  )

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
  return digest
}

function main(args: readonly string[]): void {
  const digests = new Map<string, string>()
  const digestOf = (image: string): string => {
    const digest = digests.get(image) ?? digestInRegistry(image)
    digests.set(image, digest)
    return digest
  }
  for (const file of FILES) {
    const path = join(import.meta.dirname, '..', file)
    const text = readFileSync(path, 'utf8')
    if (args.includes('--check')) {
      for (const { image, digest } of imagesIn(text)) {
        if (digest !== null) continue
        console.error(`${file}: ${image} has no digest`)
        process.exitCode = 1
      }
      continue
    }
    const after = pinned(text, digestOf)
    if (after !== text) writeFileSync(path, after)
    for (const { image } of imagesIn(after)) console.log(`${file}: ${image}@${digestOf(image)}`)
  }
}

if (import.meta.main) main(process.argv.slice(2))
