/**
 * The result of parsing a list. If the content is not valid, `list` is `null` and `faults` has a line for each fault.
 */
export type ParsedList<Entry> =
  | { readonly list: readonly Entry[]; readonly faults: readonly [] }
  | { readonly list: null; readonly faults: readonly string[] }
