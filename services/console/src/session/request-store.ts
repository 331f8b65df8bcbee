/**
 * The port to the requests with an `Idempotency-Key` that have begun within the last `KEPT_SECONDS`. Each has a unique
 * name, and an entry whose content the store does not interpret.
 */
export interface RequestStore {
  /** Adds the entry of a request that begins. Returns `null`, or the existing entry if the name is already known. */
  begin(name: string, entry: string): Promise<string | null>
  /** Replaces the entry of a request that has ended. Does nothing if the name is not known any more. */
  end(name: string, entry: string): Promise<void>
  /** Removes a request, so that a repetition is executed. */
  forget(name: string): Promise<void>
}

export const KEPT_SECONDS = 600
