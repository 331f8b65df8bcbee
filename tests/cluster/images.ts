/** The images of `npm run test:cluster` that Compose does not build. */
import { execFile } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect } from '../compose/check.ts'
import { runDocker } from '../compose/docker.ts'

/** The commit of the first release, from which a cluster can be upgraded. */
const FIRST_RELEASE = 'f646b69e62594d888261e62c64d5d1b2f4bcb10a'
const FIRST_RELEASE_IMAGE = 'integration-host-cluster:first-release'
/** All images of the cluster test: the images of compose.yaml, and the image of first-release.yaml. */
const IMAGES = [
  'integration-host-cluster',
  'integration-host-cluster-packet-filter',
  FIRST_RELEASE_IMAGE,
]
const REMOVAL_MS = 60_000

/**
 * Builds the image of the first release from the history of this repository.
 *
 * @throws {Error} if the history does not contain the first release, or if the build fails
 */
export async function buildFirstRelease(signal: AbortSignal): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'first-release-'))
  try {
    const extract = 'git archive "$0" | tar --extract --directory "$1"'
    const args = ['-o', 'pipefail', '-c', extract, FIRST_RELEASE, folder]
    await promisify(execFile)('bash', args, { cwd: join(import.meta.dirname, '../..'), signal })
    const built = await runDocker(
      ['build', '--quiet', '--tag', FIRST_RELEASE_IMAGE, folder],
      {},
      signal,
    )
    expect(built.code === 0, `the image of the first release was not built:\n${built.text}`)
  } finally {
    await rm(folder, { recursive: true })
  }
}

/** Removes the images. An image that another cluster uses remains. */
export async function removeImages(): Promise<void> {
  for (const image of IMAGES)
    await runDocker(['image', 'rm', image], {}, AbortSignal.timeout(REMOVAL_MS))
}
