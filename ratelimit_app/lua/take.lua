-- Weigh every limit of one decision, then take from all of their buckets or from none.
--
-- What a bucket holds:
--   token, leaky bucket   one integer: the moment at which it is full (empty) again; a string, or a
--                         field of a hash that holds the buckets of several callers
--   fixed, sliding window a hash: `window`, the moment the current window began; `current` and
--                         `previous`, the tokens taken in it and in the one before
--   sliding log           a list: the moment of every token taken within the last period
-- No key is a full bucket. All times are in ticks of 100 ns, moments count from 1 January 2026 UTC.
--
-- KEYS   for each limit: its bucket, or the hash that it is in; then those of its earlier generations, newest first
-- ARGV   nonce
--        now: the moment to decide at; 0 means the server's clock
--        dry: 1 to weigh only
--        floor: the shortest expiry in ms (0; above it when a test's clock stands still)
--        then for each limit:
--          field: of the caller, where token and leaky buckets are in hashes; else empty
--          kind: 1 token or leaky bucket, 2 fixed window, 3 sliding window, 4 sliding log
--          charge: to take, in ticks for kind 1 and in tokens for the others
--          capacity: in the same unit
--          ceiling: for kind 1 the most debt after the charge, at most the capacity; else 0
--          period: the window in ticks; 0 for kind 1
--          enforced: 1 when the limit may refuse, 0 when it is only watched
--          earlier: the number of earlier generations; then for each its kind, capacity, period
-- reply  nonce, now, 1 when allowed and else 0, then for each limit its reading before the decision:
--          kind 1: the debt; 2: current; 3: current, previous;
--          4: the tokens used, the moments of the oldest, of the one that must leave for the
--             charge to fit (0 when it fits), and of the newest (0 when there is none)

local EPOCH_SECONDS = 1767225600
local TICKS_PER_SECOND = 10000000
local TICKS_PER_MILLISECOND = 10000
local BUCKET, FIXED, SLIDING, LOG = 1, 2, 3, 4
-- Below it a carried share is a floating-point error, not use: 7 of 100 stays 7.
local ROUNDING = 1e-6

local nonce = tonumber(ARGV[1])
local now = tonumber(ARGV[2])
local dry = ARGV[3] == '1'
local floor_ms = tonumber(ARGV[4])

if now == 0 then
  local time = redis.call('TIME')
  now = (tonumber(time[1]) - EPOCH_SECONDS) * TICKS_PER_SECOND + tonumber(time[2]) * 10
end

-- A stored moment or count; anything else is somebody else's key.
local function number(stored, bucket)
  return tonumber(stored) or error('WRONGTYPE ' .. bucket .. ' does not hold a bucket')
end

-- A bucket is a key of its own, or a field of a hash that it shares with others.
local function read(bucket, field)
  if field == '' then
    return redis.call('GET', bucket)
  end
  return redis.call('HGET', bucket, field)
end

-- current, previous, the moment the current window began, and whether the clock stepped back since
-- it was stored; nil when nothing is stored.
local function window(bucket, period)
  local held = redis.call('HMGET', bucket, 'window', 'current', 'previous')
  local began = now - now % period
  if not held[1] then
    return nil, 0, began
  end
  local stored = number(held[1], bucket)
  if stored >= began then -- above it when the clock stepped back: what was taken counts as taken now
    return number(held[2], bucket), number(held[3], bucket), began, stored > began
  elseif stored == began - period then
    return 0, number(held[2], bucket), began
  end
  return 0, 0, began
end

-- The number of tokens in a log that have left the period; a moment is in it for exactly `period`.
local function expired(bucket, period, length)
  local low, high = 0, length
  while low < high do
    local middle = math.floor((low + high) / 2)
    if number(redis.call('LINDEX', bucket, middle), bucket) <= now - period then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

-- The share of its capacity that a caller had used of an earlier generation, or nil.
local function used_share(bucket, field, kind, capacity, period)
  local used
  if kind == BUCKET then
    local full_at = read(bucket, field)
    used = full_at and number(full_at, bucket) - now
  elseif kind == LOG then
    local length = redis.call('LLEN', bucket)
    used = length > 0 and length - expired(bucket, period, length)
  else
    local current, previous, began = window(bucket, period)
    used = current
    if used and kind == SLIDING then
      used = used + previous * math.max(0, began + period - now) / period
    end
  end
  return used and math.min(1, math.max(0, used / capacity)) or nil
end

-- Read and weigh everything before anything is written: an error half-way must leave no charge.
local limits = {}
local allowed = true
local key, arg = 1, 5
while key <= #KEYS do
  local bucket = KEYS[key]
  local field, kind, charge = ARGV[arg], tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2])
  local capacity, ceiling = tonumber(ARGV[arg + 3]), tonumber(ARGV[arg + 4])
  local period, earlier = tonumber(ARGV[arg + 5]), tonumber(ARGV[arg + 7])
  local limit = { bucket = bucket, field = field, kind = kind, charge = charge, period = period, keep_ms = 0 }
  limit.capacity = capacity

  if kind == BUCKET then
    local stored = read(bucket, field)
    limit.exists = stored
    limit.debt = stored and math.max(0, number(stored, bucket) - now) or 0
  elseif kind == LOG then
    limit.length = redis.call('LLEN', bucket)
    limit.exists = limit.length > 0
    limit.left = limit.exists and expired(bucket, period, limit.length) or 0
    limit.used = limit.length - limit.left
  else
    -- Written even by a refusal after a step back, or the caller would be frozen until the clock is there again.
    limit.current, limit.previous, limit.began, limit.changed = window(bucket, period)
    limit.exists = limit.current
    limit.current = limit.current or 0
  end

  for generation = 1, earlier do
    local old, at = KEYS[key + generation], arg + 5 + 3 * generation
    -- While a bucket of an earlier generation exists, the new one must outlive it, or the old use
    -- would be carried over a second time.
    limit.keep_ms = math.max(limit.keep_ms, redis.call('PTTL', old))
    if not limit.exists then
      local share = used_share(old, field, tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]))
      if share then
        -- The edit keeps the used share.
        local used = math.max(0, math.ceil(share * capacity - ROUNDING))
        limit.exists, limit.changed = true, used > 0
        if kind == BUCKET then
          limit.debt = used
        elseif kind == LOG then
          limit.used, limit.carried = used, used
        else
          limit.current = used
        end
      end
    end
  end

  local fits
  if kind == BUCKET then
    -- More debt than the bucket can have: the clock stepped back, or the burst shrank. Without the
    -- clamp, written even by a refusal, the caller would be frozen.
    if limit.debt > capacity then
      limit.debt, limit.changed = capacity, true
    end
    fits = limit.debt + charge <= ceiling
    limit.reading = { limit.debt }
  elseif kind == FIXED then
    fits = limit.current + charge <= capacity
    limit.reading = { limit.current }
  elseif kind == SLIDING then
    local period_ms = period / TICKS_PER_MILLISECOND
    local left = period_ms - math.floor((now - limit.began) / TICKS_PER_MILLISECOND)
    fits = limit.previous * left + (limit.current + charge) * period_ms <= capacity * period_ms
    limit.reading = { limit.current, limit.previous }
  else
    fits = limit.used + charge <= capacity
    local oldest, newest, freeing = 0, 0, 0
    if limit.used > 0 and not limit.carried then
      newest = number(redis.call('LINDEX', bucket, -1), bucket)
      if newest > now then -- the clock stepped back: what was taken counts as taken now
        limit.carried, limit.left, limit.changed = limit.used, limit.length, true
      end
    end
    if limit.carried then
      oldest, newest, freeing = now, now, now
    elseif limit.used > 0 then
      oldest = number(redis.call('LINDEX', bucket, limit.left), bucket)
      local short = limit.used + charge - capacity
      if short > 0 and charge <= capacity then
        freeing = number(redis.call('LINDEX', bucket, limit.left + short - 1), bucket)
      end
    end
    limit.reading = { limit.used, oldest, freeing, newest }
  end
  limit.fits = fits
  if ARGV[arg + 6] == '1' and not fits then
    allowed = false
  end
  limits[#limits + 1] = limit
  key = key + 1 + earlier
  arg = arg + 8 + 3 * earlier
end

local function expire(limit, lives)
  redis.call('PEXPIRE', limit.bucket, math.max(floor_ms, limit.keep_ms, math.ceil(lives / TICKS_PER_MILLISECOND)))
end

local function write(limit, charge)
  local bucket, kind = limit.bucket, limit.kind
  if kind == BUCKET then
    local debt = limit.debt + charge
    local expiry_ms = math.max(floor_ms, limit.keep_ms, math.ceil(debt / TICKS_PER_MILLISECOND))
    if limit.field ~= '' then
      redis.call('HSET', bucket, limit.field, now + debt)
      -- A hash outlives the most debt that a bucket in it can have. It is prolonged only when it has less
      -- than that left, for twice as long: never shortened, and seldom written.
      local capacity_ms = math.ceil(limit.capacity / TICKS_PER_MILLISECOND)
      local least_ms = math.max(expiry_ms, capacity_ms)
      if redis.call('PTTL', bucket) < least_ms then
        redis.call('PEXPIRE', bucket, math.max(least_ms, 2 * capacity_ms))
      end
    elseif expiry_ms > 0 then
      redis.call('SET', bucket, now + debt, 'PX', expiry_ms)
    else
      redis.call('DEL', bucket)
    end
  elseif kind == LOG then
    if limit.left > 0 then
      redis.call('LTRIM', bucket, limit.left, -1)
    end
    if limit.keep_ms > 0 then
      redis.call('LPUSH', bucket, 0) -- long gone; a refund that empties the log must not delete the key
    end
    local missing = (limit.carried or 0) + charge
    while missing > 0 do
      local moments = {}
      for index = 1, math.min(missing, 1000) do
        moments[index] = now
      end
      redis.call('RPUSH', bucket, unpack(moments))
      missing = missing - #moments
    end
    expire(limit, limit.period)
  else
    local current = limit.current + charge
    redis.call('HSET', bucket, 'window', limit.began, 'current', current, 'previous', limit.previous)
    local windows = kind == SLIDING and 2 or 1
    expire(limit, limit.began + windows * limit.period - now)
  end
end

local reply = { nonce, now, allowed and 1 or 0 }
for _, limit in ipairs(limits) do
  for _, value in ipairs(limit.reading) do
    reply[#reply + 1] = value
  end
  local charge = allowed and limit.fits and limit.charge or 0
  if not dry then
    -- A key that lost its expiry by somebody's hand gets it back.
    if charge > 0 or limit.changed or (limit.exists and redis.call('PTTL', limit.bucket) == -1) then
      write(limit, charge)
    end
  end
end
return reply
