-- Each request is for one of many realms; prints the results as one line of JSON at the end.
local realms, key = tonumber(os.getenv("REALMS")), os.getenv("KEY")
local headers = { ["Accept"] = "application/json", ["Authorization"] = "Bearer " .. key }
local method, path = os.getenv("METHOD"), os.getenv("REQUEST_PATH")
local bytes = tonumber(os.getenv("BODY_BYTES"))
local body = bytes > 0 and string.rep("x", bytes) or nil
if body then headers["Content-Type"] = "application/json" end
-- The requests are formatted once, because formatting one takes longer than sending it.
local n, requests = 0, {}
init = function()
  for realm = 0, realms - 1 do
    requests[realm] = wrk.format(method, (path:gsub("{realm}", realm)), headers, body)
  end
end
request = function()
  n = n + 1
  return requests[n * 7919 % realms]
end
done = function(summary, latency)
  local errors = summary.errors
  io.write(string.format('\n{"requests":%d,"micros":%d,"p50":%d,"p99":%d,"errors":%d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
