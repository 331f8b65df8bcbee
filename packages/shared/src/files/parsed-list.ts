/** A parsed list; `null` if the content is not valid, with a line for each fault. */
export type ParsedList<Entry> =
  | { readonly list: readonly Entry[]; readonly faults: readonly [] }
  | { readonly list: null; readonly faults: readonly string[] }
