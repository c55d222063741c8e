-- Say that a gateway lives, and count those that do.
--
-- A gateway that finds its last sign of life missing, or an earlier one in its place, knows that the server
-- forgot what was written since then. So silent ones are not counted, but kept for a day.
--
-- KEYS   the set of gateways: each with the moment of its last sign of life, in seconds since 1970
-- ARGV   nonce, the gateway's number, the seconds after which a silent gateway is gone
-- reply  nonce, the number of gateways alive, now, and this gateway's sign of life before (0: none);
--        moments in milliseconds since 1970

local DAY = 86400

local time = redis.call('TIME')
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local now = now_ms / 1000
local before = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[2]) or 0)
redis.call('ZADD', KEYS[1], string.format('%.3f', now), ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - DAY)
redis.call('EXPIRE', KEYS[1], DAY)
local alive = redis.call('ZCOUNT', KEYS[1], string.format('(%.3f', now - tonumber(ARGV[3])), '+inf')
return { tonumber(ARGV[1]), alive, now_ms, math.floor(before * 1000 + 0.5) }
