/**
 * Returns the name of a key in texts for persons. A key of `SERVICE_API_KEY(S)` has no id of its own, only digits of its
 * digest, so the name says where the key comes from.
 *
 * `packages/shared/src/access/key-list.ts` is the same for the command line.
 *
 * @param id the id of a key, or the name of a person, which stays as it is
 */
export const keyName = (id: string): string =>
  /^[0-9a-f]{8}$/.test(id) ? `SERVICE_API_KEY (${id})` : id
