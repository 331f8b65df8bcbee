/**
 * Returns a script together with the names of its keys, in the order of KEYS. The comment at the top of scripts.ts
 * describes the Lua tables `K` and `a`.
 */
export const define = <Key extends string>(keys: readonly Key[], body: string) => ({
  keys,
  lua: `local a = cjson.decode(ARGV[1])
local K = { ${keys.map((key, index) => `${key} = KEYS[${index + 1}]`).join(', ')} }
${body}`,
})
