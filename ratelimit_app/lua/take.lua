-- Weigh every limit of one decision, then take from all of their buckets or from none.
--
-- A bucket is one integer: the moment at which it is full again. No key, or a moment in the past,
-- is a full bucket. Its debt is the time until then; it is empty when the debt is its capacity.
-- All times are in ticks of 100 ns, moments count from 1 January 2026 UTC.
--
-- KEYS   for each limit: its bucket, then the buckets of its earlier generations, newest first
-- ARGV   nonce
--        now: the moment to decide at; 0 means the server's clock
--        dry: 1 to weigh only
--        floor: the shortest expiry in ms (0; above it when a test's clock stands still)
--        then for each limit:
--          charge: ticks to take; below 0 gives back
--          capacity
--          enforced: 1 when the limit may refuse, 0 when it is only watched
--          earlier: the number of earlier generations, then the capacity of each
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
  now = (tonumber(time[1]) - EPOCH_SECONDS) * TICKS_PER_SECOND + tonumber(time[2]) * 10
end

-- The moment a bucket is full again, or nil when there is no key.
local function full_at(bucket)
  local stored = redis.call('GET', bucket)
  if not stored then
    return nil
  end
  return tonumber(stored) or error('WRONGTYPE ' .. bucket .. ' does not hold a bucket')
end

-- Read and weigh everything before anything is written: an error half-way must leave no charge.
local limits = {}
local allowed = true
local key, arg = 1, 5
while key <= #KEYS do
  local charge = tonumber(ARGV[arg])
  local capacity = tonumber(ARGV[arg + 1])
  local enforced = ARGV[arg + 2] == '1'
  local earlier = tonumber(ARGV[arg + 3])

  local bucket = KEYS[key]
  local stored = full_at(bucket)
  local debt = math.max(0, (stored or 0) - now)
  -- More debt than the bucket can have: the clock stepped back, or the burst shrank. Without the
  -- clamp, written even by a refusal, the caller would be frozen.
  local changed = debt > capacity
  -- While a bucket of an earlier generation exists, the new one must outlive it, or the old debt
  -- would be carried over a second time.
  local keep_until = 0
  for generation = 1, earlier do
    local old = full_at(KEYS[key + generation])
    if old then
      keep_until = math.max(keep_until, old)
      if not stored then
        -- The edit keeps the used share.
        local old_capacity = tonumber(ARGV[arg + 3 + generation])
        debt = math.ceil(math.min(1, math.max(0, old - now) / old_capacity) * capacity)
        stored = now + debt
        changed = true
      end
    end
  end
  debt = math.min(debt, capacity)

  local fits = debt + charge <= capacity
  if enforced and not fits then
    allowed = false
  end
  limits[#limits + 1] = {
    bucket = bucket, stored = stored, debt = debt, charge = charge,
    fits = fits, changed = changed, keep_until = keep_until,
  }
  key = key + 1 + earlier
  arg = arg + 4 + earlier
end

local reply = { nonce, now, allowed and 1 or 0 }
for index, limit in ipairs(limits) do
  reply[3 + index] = limit.debt
  local debt = limit.debt
  if allowed and limit.fits and limit.charge ~= 0 then
    debt = math.max(0, debt + limit.charge)
    limit.changed = true
  end
  -- A key that lost its expiry by somebody's hand gets it back.
  if not dry and (limit.changed or (limit.stored and redis.call('PTTL', limit.bucket) == -1)) then
    local lives = math.max(debt, limit.keep_until - now)
    local expiry_ms = math.max(floor_ms, math.ceil(lives / TICKS_PER_MILLISECOND))
    if expiry_ms > 0 then
      redis.call('SET', limit.bucket, now + debt, 'PX', expiry_ms)
    else
      redis.call('DEL', limit.bucket)
    end
  end
end
return reply
