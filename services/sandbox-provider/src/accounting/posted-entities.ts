export interface Posted {
  /** The entity as it is stored, under its name: `{ Invoice: {…}, time }`. */
  readonly document: Readonly<Record<string, unknown>>
  readonly isPlayedBack: boolean
}

export interface PostedEntities {
  /**
   * Creates an entity and answers it. A `requestId` that the company has used before creates nothing: the
   * first answer is played back.
   */
  post(
    at: { readonly realm: string; readonly entity: string; readonly requestId: string | null },
    body: Readonly<Record<string, unknown>>,
    now: Date,
  ): Posted
  reset(): void
}

const PLAYED_BACK_REQUESTS = 10_000

export function createPostedEntities(): PostedEntities {
  const answers = new Map<string, Posted['document']>()
  let lastId = 0
  return {
    post({ realm, entity, requestId }, body, now) {
      const key = requestId === null ? null : `${realm}/${requestId}`
      const known = key === null ? undefined : answers.get(key)
      if (known !== undefined) return { document: known, isPlayedBack: true }
      const document = {
        [entity.charAt(0).toUpperCase() + entity.slice(1)]: {
          ...body,
          domain: 'QBO',
          sparse: false,
          Id: String(++lastId),
          SyncToken: '0',
          MetaData: { CreateTime: now.toISOString(), LastUpdatedTime: now.toISOString() },
        },
        time: now.toISOString(),
      }
      if (key !== null) {
        answers.set(key, document)
        const [oldest] = answers.keys()
        if (answers.size > PLAYED_BACK_REQUESTS && oldest !== undefined) answers.delete(oldest)
      }
      return { document, isPlayedBack: false }
    },
    reset() {
      answers.clear()
      lastId = 0
    },
  }
}
