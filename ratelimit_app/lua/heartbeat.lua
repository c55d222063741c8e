-- Say that a gateway lives, and count those that do.
--
-- KEYS   the set of gateways
-- ARGV   nonce, the gateway's number, the seconds after which a silent gateway is gone
-- reply  nonce, the number of gateways alive

local now = tonumber(redis.call('TIME')[1])
local lives = tonumber(ARGV[3])
redis.call('ZADD', KEYS[1], now, ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - lives)
redis.call('EXPIRE', KEYS[1], lives)
return { tonumber(ARGV[1]), redis.call('ZCARD', KEYS[1]) }
