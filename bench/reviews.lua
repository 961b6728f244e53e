-- wrk sends the reviews in the files it is given, one after the other, and tells what it saw.
local requests = {}
local turn = 0

function init(files)
  for _, path in ipairs(files) do
    local file = assert(io.open(path, "rb"))
    local headers = { ["Content-Type"] = "application/json", ["User-Agent"] = "kube-apiserver-admission" }
    requests[#requests + 1] = wrk.format("POST", nil, headers, file:read("*a"))
    file:close()
  end
end

function request()
  turn = turn % #requests + 1
  return requests[turn]
end

function done(summary, latency, _)
  local errors = summary.errors
  io.write(string.format(
    '\nRESULT {"requests": %d, "microseconds": %d, "p50": %f, "p99": %f, "errors": %d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
