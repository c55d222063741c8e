-- Give back what one decision took, to the buckets that it took it from (see take.lua).
--
-- KEYS   the buckets, or the hashes that they are in
-- ARGV   nonce
--        now: 0 means the server's clock
--        taken: the moment of the decision
--        floor: the shortest expiry in ms
--        then for each bucket: field, kind, charge, period, as take.lua was told; or kind 5, a token
--        bucket that gets back what was taken ahead of time and not used
-- reply  nonce

local EPOCH_SECONDS = 1767225600
local TICKS_PER_SECOND = 10000000
local TICKS_PER_MILLISECOND = 10000
local BUCKET, LOG, LEASED = 1, 4, 5

local nonce = tonumber(ARGV[1])
local now = tonumber(ARGV[2])
local taken = tonumber(ARGV[3])
local floor_ms = tonumber(ARGV[4])
if now == 0 then
  local time = redis.call('TIME')
  now = (tonumber(time[1]) - EPOCH_SECONDS) * TICKS_PER_SECOND + tonumber(time[2]) * 10
end

-- A bucket is a key of its own, or a field of a hash that it shares with others.
local function read(bucket, field)
  if field == '' then
    return redis.call('GET', bucket)
  end
  return redis.call('HGET', bucket, field)
end

for index, bucket in ipairs(KEYS) do
  local field, at = ARGV[1 + 4 * index], 2 + 4 * index
  local kind, charge, period = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  if kind == LEASED then
    -- The bucket may have been full meanwhile and so have gained what it would not have gained
    -- had nothing been taken. Given back in full, the same tokens could be made twice.
    charge = math.max(0, charge - math.max(0, now - taken))
    kind = BUCKET
  end
  if kind == BUCKET then
    local full_at = tonumber(read(bucket, field) or 0)
    local debt = math.max(0, full_at - now - charge)
    -- The expiry stays: it may be what keeps an earlier generation from being carried over twice.
    if full_at > 0 and field == '' then
      redis.call('SET', bucket, now + debt, 'KEEPTTL')
    elseif full_at > 0 then
      redis.call('HSET', bucket, field, now + debt)
    end
  elseif kind == LOG then
    redis.call('LREM', bucket, -charge, taken)
  else
    -- The window that was charged may have become the previous one, or have passed.
    local began = tonumber(redis.call('HGET', bucket, 'window') or -1)
    local charged = taken - taken % period
    local field = began == charged and 'current' or began == charged + period and 'previous'
    if field then
      local held = tonumber(redis.call('HGET', bucket, field))
      redis.call('HSET', bucket, field, math.max(0, held - charge))
    end
  end
end
return { nonce }
