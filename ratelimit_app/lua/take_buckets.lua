-- What take.lua does, for token and leaky buckets whose limits were not edited lately: nearly every
-- decision, at two thirds of the cost. It counts in debt: the ticks until a bucket is full (empty) again.
--
-- KEYS   for each limit: its bucket
-- ARGV   nonce, now, dry, floor: as in take.lua
--        then for each limit:
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

-- Read and weigh everything before anything is written: an error half-way must leave no charge.
local allowed = 1
local reply = { nonce, now, allowed }
local held, clamped, fits = {}, {}, {}
for index, bucket in ipairs(KEYS) do
  local arg = 4 * index + 1
  local charge, capacity, ceiling = tonumber(ARGV[arg]), tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2])
  local stored, debt = redis.call('GET', bucket), 0
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
  elseif ARGV[arg + 3] == '1' then
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
    redis.call('SET', bucket, now + debt, 'PX', math.max(1, floor_ms, math.ceil(debt / TICKS_PER_MILLISECOND)))
  end
end
return reply
