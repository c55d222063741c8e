-- Tell a server that forgot what it had said: these buckets are no fuller than that.
--
-- Only ever takes: a bucket that holds less by now stays as it is, so several gateways may tell the same.
--
-- KEYS   token and leaky buckets, or the hashes that they are in
-- ARGV   nonce, then for each bucket its field (empty: none), and the moment at which it is full (empty) again,
--        in ticks (see take.lua)
-- reply  nonce, the number of buckets that were too full

local EPOCH_SECONDS = 1767225600
local TICKS_PER_SECOND = 10000000
local TICKS_PER_MILLISECOND = 10000

local time = redis.call('TIME')
local now = (tonumber(time[1]) - EPOCH_SECONDS) * TICKS_PER_SECOND + tonumber(time[2]) * 10
local raised = 0
for place, bucket in ipairs(KEYS) do
  local field, full_at = ARGV[2 * place], tonumber(ARGV[2 * place + 1])
  local stored
  if field == '' then
    stored = redis.pcall('GET', bucket)
  else
    stored = redis.pcall('HGET', bucket, field)
  end
  local is_ours = type(stored) ~= 'table' -- an error: somebody else's key, which `take` reports
  if is_ours and full_at > now and full_at > (tonumber(stored or 0) or full_at) then
    local expiry_ms = math.ceil((full_at - now) / TICKS_PER_MILLISECOND)
    if field == '' then
      redis.call('SET', bucket, ARGV[2 * place + 1], 'PX', expiry_ms)
    else
      redis.call('HSET', bucket, field, ARGV[2 * place + 1])
      redis.call('PEXPIRE', bucket, math.max(expiry_ms, redis.call('PTTL', bucket)))
    end
    raised = raised + 1
  end
end
return { tonumber(ARGV[1]), raised }
