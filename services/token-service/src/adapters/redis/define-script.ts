/**
 * Returns a script together with the names of its keys, in the order of KEYS. The script uses the tables `K` and `a`,
 * which the comment at the top of scripts.ts describes.
 */
export const define = <Key extends string>(keys: readonly Key[], body: string) => ({
  keys,
  lua: `local a = cjson.decode(ARGV[1])
local K = { ${keys.map((key, index) => `${key} = KEYS[${index + 1}]`).join(', ')} }
${body}`,
})
