/** Lua scripts, and fragments of scripts, for the sorted sets by which credentials are listed (list-index.ts). */
import { define } from './define-script.ts'

/**
 * Lua: moves a credential to the sets of its current state and class. `a.listed` is the new value of the field `Listed`
 * (list-index.ts).
 */
export const LIST_STATE = `
local listed = redis.call('HGET', K.credential, 'Listed') or ''
if listed ~= a.listed then
  for set in string.gmatch(listed, '%S+') do redis.call('ZREM', K.index .. set, a.name) end
  for set in string.gmatch(a.listed, '%S+') do redis.call('ZADD', K.index .. set, 0, a.name) end
  redis.call('HSET', K.credential, 'Listed', a.listed)
end
`

/**
 * Lua: changes the index entries of a label and tags. `a.unindexed` and `a.indexed` are flat lists in which each set is
 * followed by its member.
 */
export const INDEX_LABELS = `
for i = 1, #a.unindexed, 2 do redis.call('ZREM', K.index .. a.unindexed[i], a.unindexed[i + 1]) end
for i = 1, #a.indexed, 2 do redis.call('ZADD', K.index .. a.indexed[i], 0, a.indexed[i + 1]) end
`

// Examines the entries of a set within a range. Returns the names that fulfil the conditions, and the last name that
// was examined. If the range has no further entries, an empty string is returned in place of the last name.
const search = define(
  ['names', 'index'],
  `
local function isIn(set, name)
  return redis.call('ZSCORE', set == 'names' and K.names or K.index .. set, name)
end
local function isInSets(name)
  for _, set in ipairs(a.without) do
    if isIn(set, name) then return false end
  end
  for _, group in ipairs(a.within) do
    local found = false
    for _, set in ipairs(group) do
      if isIn(set, name) then
        found = true
        break
      end
    end
    if not found then return false end
  end
  return true
end
local function hasText(name)
  local lower = string.lower(name)
  if a.text == '' or string.sub(lower, 1, #a.text) == a.text or
    string.sub(lower, 5, 4 + #a.text) == a.text then return true end
  local entry = redis.call('ZRANGEBYLEX', K.index .. 'labels',
    '[' .. name .. ' ', '(' .. name .. '!', 'LIMIT', 0, 1)[1]
  return entry and string.find(entry, a.text, #name + 2, true)
end
local entries = redis.call('ZRANGEBYLEX', a.set == 'names' and K.names or K.index .. a.set,
  a.from, a.to, 'LIMIT', 0, a.chunk)
local isLabels = a.set == 'labels'
local found = {}
local last = ''
for _, entry in ipairs(entries) do
  last = entry
  local isFound
  if isLabels then
    local space = string.find(entry, ' ', 1, true)
    last = string.sub(entry, 1, space - 1)
    isFound = string.find(entry, a.text, space + 1, true) and isInSets(last)
  else
    isFound = isInSets(last) and hasText(last)
  end
  if isFound then
    found[#found + 1] = last
    if #found == tonumber(a.limit) then return {found, last} end
  end
end
if #entries < tonumber(a.chunk) then last = '' end
return {found, last}
`,
)

// Acquires or extends the lease that a replica needs to complete the index.
const acquireIndex = define(
  ['lease'],
  `
local holder = redis.call('GET', K.lease)
if holder and holder ~= a.owner then return 0 end
redis.call('SET', K.lease, a.owner, 'PX', a.leaseMs)
return 1
`,
)

// Corrects the index entries of a credential, unless its record was changed after the caller read it.
const relist = define(
  ['credential', 'index'],
  `
if redis.call('HGET', K.credential, 'Version') ~= a.version then return end
if (redis.call('HGET', K.credential, 'Fault') or '') ~= a.fault then return end
${LIST_STATE}
`,
)

// Removes a name from a set unless the field `Listed` of its record names this set.
const unlist = define(
  ['credential', 'index'],
  `
local listed = redis.call('HGET', K.credential, 'Listed') or ''
if not string.find(' ' .. listed .. ' ', ' ' .. a.set .. ' ', 1, true) then
  redis.call('ZREM', K.index .. a.set, a.name)
end
`,
)

export const listScripts = { search, acquireIndex, relist, unlist }
