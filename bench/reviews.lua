-- A script for wrk. It sends the reviews in the given files in turn, and prints the results as JSON.
local requests = {}
local last = 0

function init(files)
  for _, path in ipairs(files) do
    local file = assert(io.open(path, "rb"))
    local headers = { ["Content-Type"] = "application/json", ["User-Agent"] = "kube-apiserver-admission" }
    requests[#requests + 1] = wrk.format("POST", nil, headers, file:read("*a"))
    file:close()
  end
end

function request()
  last = last % #requests + 1
  return requests[last]
end

function done(summary, latency, _)
  local errors = summary.errors
  io.write(string.format(
    '\nRESULT {"requests": %d, "microseconds": %d, "p50": %f, "p99": %f, "errors": %d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
