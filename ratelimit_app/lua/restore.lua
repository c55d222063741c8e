-- Tell a server that forgot what it had said: these buckets are no fuller than that.
--
-- Only ever takes: a bucket that holds less by now stays as it is, so several gateways may tell the same.
--
-- KEYS   token and leaky buckets
-- ARGV   nonce, then for each bucket the moment at which it is full (empty) again, in ticks (see take.lua)
-- reply  nonce, the number of buckets that were too full

local EPOCH_SECONDS = 1767225600
local TICKS_PER_SECOND = 10000000
local TICKS_PER_MILLISECOND = 10000

local time = redis.call('TIME')
local now = (tonumber(time[1]) - EPOCH_SECONDS) * TICKS_PER_SECOND + tonumber(time[2]) * 10
local raised = 0
for place, bucket in ipairs(KEYS) do
  local full_at = tonumber(ARGV[place + 1])
  local stored = redis.pcall('GET', bucket)
  local is_ours = type(stored) ~= 'table' -- an error: somebody else's key, which `take` reports
  if is_ours and full_at > now and full_at > (tonumber(stored or 0) or full_at) then
    redis.call('SET', bucket, ARGV[place + 1], 'PX', math.ceil((full_at - now) / TICKS_PER_MILLISECOND))
    raised = raised + 1
  end
end
return { tonumber(ARGV[1]), raised }
