/** Stores connect links in memory and, for an embedded host, in files. Both suffice only for a single process. */
import { mkdir, readdir, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { IntegrationError } from '@integration-host/shared/errors'
import { writeFileAtomic } from '@integration-host/shared/files/durable-file'
import { parseJsonAs } from '@integration-host/shared/json'
import {
  CONNECT_LINKS,
  ConnectLink,
  type ConnectLinkStore,
  keptUntil,
  positionOf,
  tooManyLinksOfKey,
} from '../../authorization/connect-link-store.ts'

const SUFFIX = '.link.json'

/**
 * Stores connect links in a folder with one file for each link, so that they survive a restart. Reads use only a copy of
 * the links in memory. Opens the folder, and creates it if it does not exist. Deletes the files of links whose deletion
 * time has passed.
 */
export async function createFileConnectLinkStore(
  folder: string,
  now: () => number = Date.now,
): Promise<ConnectLinkStore> {
  await mkdir(folder, { recursive: true, mode: 0o700 })
  const pathOf = (id: string): string => join(folder, `${id}${SUFFIX}`)
  const deleteFile = (id: string): Promise<void> => rm(pathOf(id), { force: true })
  const memory = createMemoryConnectLinkStore(now, (id) => {
    // A file that cannot be deleted now is deleted at the next start.
    deleteFile(id).catch(() => {})
  })
  for (const file of (await readdir(folder)).filter((name) => name.endsWith(SUFFIX))) {
    const link = parseJsonAs(ConnectLink, await readFile(join(folder, file), 'utf8'))
    if (link !== null && keptUntil(link) > now()) await memory.add(link, now())
    else await rm(join(folder, file), { force: true })
  }

  const stored = <T>(write: Promise<T>): Promise<T> =>
    write.catch((cause: unknown) => {
      throw new IntegrationError('store_unavailable', 'the connect links cannot be written', {
        cause,
        retryAfterSeconds: 1,
      })
    })
  const write = (link: ConnectLink): Promise<void> =>
    stored(writeFileAtomic(pathOf(link.id), JSON.stringify(link)))

  return {
    ...memory,
    async add(link, at) {
      if (!(await memory.add(link, at))) return false
      try {
        await write(link)
      } catch (error) {
        await memory.remove(link)
        throw error
      }
      return true
    },
    async use(link, use) {
      // The copy in memory lets only one of several concurrent callers use a link. If the write to the file fails
      // afterwards, no authorization is started, and the link counts as used until the next start.
      if (!(await memory.use(link, use))) return false
      await write({ ...link, ...use })
      return true
    },
    async remove(link) {
      if (!(await memory.remove(link))) return false
      await stored(deleteFile(link.id))
      return true
    },
  }
}

/** Stores connect links in memory only. */
export function createMemoryConnectLinkStore(
  now: () => number = Date.now,
  /** Called with the id of each link that the store deletes because its deletion time has passed. */
  onDropped: (id: string) => void = () => {},
): ConnectLinkStore {
  const links = new Map<string, ConnectLink>()
  const isKept = (link: ConnectLink): boolean => keptUntil(link) > now()
  const get = (id: string): ConnectLink | null => {
    const link = links.get(id)
    return link !== undefined && isKept(link) ? link : null
  }
  return {
    async add(link) {
      const { total, perKey } = CONNECT_LINKS
      if (links.size >= total)
        for (const known of links.values())
          if (!isKept(known)) {
            links.delete(known.id)
            onDropped(known.id)
          }
      if (links.size >= total) return false
      if (link.keyId !== null) {
        const ofKey = [...links.values()].filter(
          (known) => known.keyId === link.keyId && isKept(known),
        )
        if (ofKey.length >= perKey) throw tooManyLinksOfKey()
      }
      links.set(link.id, link)
      return true
    },
    async get(id) {
      return get(id)
    },
    async use({ id }, use) {
      const link = get(id)
      if (link?.usedAt !== null) return false
      links.set(id, { ...link, ...use })
      return true
    },
    async list({ after, limit }) {
      return [...links.values()]
        .filter(isKept)
        .map((link) => ({ link, position: positionOf(link) }))
        .filter(({ position }) => position > after)
        .toSorted((one, other) => (one.position < other.position ? -1 : 1))
        .slice(0, limit)
        .map(({ link }) => link)
    },
    async remove({ id }) {
      return links.delete(id)
    },
  }
}
