-- What take.lua does, for token and leaky buckets whose limits were not edited lately: nearly every
-- decision, at two thirds of the cost. It counts in debt: the ticks until a bucket is full (empty) again.
--
-- KEYS   for each limit: its bucket, or the hash that it is in
-- ARGV   nonce, now, dry, floor: as in take.lua
--        then for each limit:
--          field: as in take.lua
--          charge: in ticks
--          capacity: in ticks
--          ceiling: the most debt after the charge, at most the capacity
--          enforced: 1 when the limit may refuse, 0 when it is only watched
-- reply  nonce, now, 1 when allowed and else 0, then for each limit its debt before the decision

local EPOCH_SECONDS = 1767225600
local TICKS_PER_SECOND = 10000000
local TICKS_PER_MILLISECOND = 10000

local nonce = tonumber(ARGV[1])
local now = tonumber(ARGV[2])
local dry = ARGV[3] == '1'
local floor_ms = tonumber(ARGV[4])

if now == 0 then
  local time = redis.call('TIME')
  now = (time[1] - EPOCH_SECONDS) * TICKS_PER_SECOND + time[2] * 10
end

-- A bucket is a key of its own, or a field of a hash that it shares with others.
local function read(bucket, field)
  if field == '' then
    return redis.call('GET', bucket)
  end
  return redis.call('HGET', bucket, field)
end

-- Read and weigh everything before anything is written: an error half-way must leave no charge.
local allowed = 1
local reply = { nonce, now, allowed }
local held, clamped, fits = {}, {}, {}
for index, bucket in ipairs(KEYS) do
  local arg = 5 * index
  local charge, capacity, ceiling = tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2]), tonumber(ARGV[arg + 3])
  local stored, debt = read(bucket, ARGV[arg]), 0
  held[index] = stored
  if stored then
    -- A stored moment; anything else is somebody else's key.
    debt = (tonumber(stored) or error('WRONGTYPE ' .. bucket .. ' does not hold a bucket')) - now
    if not (debt > 0) then -- a stored nan is neither above nor below
      debt = 0
    elseif debt > capacity then -- the clock stepped back: see take.lua
      debt, clamped[index] = capacity, true
    end
  end
  if debt + charge <= ceiling then
    fits[index] = charge
  elseif ARGV[arg + 4] == '1' then
    allowed = 0
  end
  reply[index + 3] = debt
end
reply[3] = allowed
if dry then
  return reply
end

for index, bucket in ipairs(KEYS) do
  local charge = allowed == 1 and fits[index] or 0
  -- A key that lost its expiry by somebody's hand gets it back.
  if charge > 0 or clamped[index] or (held[index] and redis.call('PTTL', bucket) == -1) then
    local debt = reply[index + 3] + charge
    local field = ARGV[5 * index]
    if field == '' then
      redis.call('SET', bucket, now + debt, 'PX', math.max(1, floor_ms, math.ceil(debt / TICKS_PER_MILLISECOND)))
    else
      redis.call('HSET', bucket, field, now + debt)
      -- See take.lua.
      local lives_ms = math.max(floor_ms, math.ceil(ARGV[5 * index + 2] / TICKS_PER_MILLISECOND))
      if redis.call('PTTL', bucket) < lives_ms then
        redis.call('PEXPIRE', bucket, 2 * lives_ms)
      end
    end
  end
end
return reply
