/** Stores connect links in memory. This suffices for an installation with a single process. */
import {
  type ConnectLink,
  type ConnectLinkStore,
  CONNECT_LINKS,
  keptUntil,
  positionOf,
  tooManyLinksOfKey,
} from '../../authorization/connect-link-store.ts'

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
