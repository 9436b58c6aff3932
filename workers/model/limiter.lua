-- One model's limits, kept for all workers in one step.
--
-- KEYS: held (zset: permit, expiry ms), waiting (zset: <arrival>|<waiter>, virtual start), about
--   (hash: waiter, "<arrival> <tokens>"), shares (zset: share, virtual start of its next waiter),
--   kept (hash: place, "<arrival> <virtual start>" of one that left for a while), virtual (hash:
--   time, arrivals), window (hash: r<second> and t<second>, requests and tokens granted then), gate
--   (string that lives while the gate is closed), processes (zset: name, last seen ms)
-- ARGV: channel, process, most of its calls that may wait, in flight, requests per minute, tokens
--   per minute (0: no limit), permit ttl ms, process ttl ms, and as JSON what the process says:
--   waiting (id, share, tokens, place) and held (ids), all that there are; released (id, second,
--   tokens too few), kept (id, place) and left (ids), since it last spoke; closed_ms
--
-- Answers {wait ms, processes, second, granted ids, ids that may not wait}. What is said twice, as
-- the answer was lost, or anew, as what is kept here was, changes nothing.
--
-- Waiting is start-time fair queueing: every share moves on in virtual time by what it is granted,
-- and whoever starts first goes first; of those who start together, whoever came first. So one
-- share's many waiters do not delay another's few.

local held, waiting, about, shares, kept, virtual, window, gate, processes = unpack(KEYS)
local channel, process, max_waiting = ARGV[1], ARGV[2], tonumber(ARGV[3])
local most, per_minute, tokens_per_minute = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local permit_ttl_ms, process_ttl_ms = tonumber(ARGV[7]), tonumber(ARGV[8])
local said = cjson.decode(ARGV[9])

local KEEP_S = 3600
local WINDOW_S = 60
-- Longest time between two looks.
local LOOK_MS = 2000
-- Places kept at most; all are forgotten when there are more.
local MAX_KEPT = 10000

local time = redis.call('TIME')
local second = tonumber(time[1])
local now_ms = second * 1000 + math.floor(tonumber(time[2]) / 1000)

local function owner(id)
  return string.match(id, '^(.*)/')
end

-- Zero-padded, so that text compares as numbers do.
local function member_of(id, arrival)
  return string.format('%016d', arrival) .. '|' .. id
end

local function id_of(member)
  return string.match(member, '^%d+|(.*)$')
end

local function read(id)
  local known = redis.call('HGET', about, id)
  if not known then return nil end
  local arrival, tokens = string.match(known, '^(%d+) (%d+)$')
  return tonumber(arrival), tonumber(tokens)
end

local function forget(id)
  local arrival = read(id)
  if arrival then redis.call('ZREM', waiting, member_of(id, arrival)) end
  redis.call('HDEL', about, id)
end

-- Those who are gone.
redis.call('ZADD', processes, now_ms, process)
local gone = redis.call('ZRANGEBYSCORE', processes, '-inf', now_ms - process_ttl_ms)
if #gone > 0 then
  local is_gone = {}
  for _, name in ipairs(gone) do
    is_gone[name] = true
    redis.call('ZREM', processes, name)
  end
  for _, member in ipairs(redis.call('ZRANGE', waiting, 0, -1)) do
    local id = id_of(member)
    if is_gone[owner(id)] then forget(id) end
  end
end

-- What the process says.
for _, it in ipairs(said.released) do
  local field = 't' .. it[2]
  if redis.call('ZREM', held, it[1]) == 1 and redis.call('HEXISTS', window, field) == 1 then
    redis.call('HINCRBY', window, field, it[3])
  end
end
for _, it in ipairs(said.kept) do
  local arrival = read(it[1])
  if arrival then
    local start = redis.call('ZSCORE', waiting, member_of(it[1], arrival))
    redis.call('HSET', kept, it[2], arrival .. ' ' .. start)
  end
end
if redis.call('HLEN', kept) > MAX_KEPT then redis.call('DEL', kept) end
for _, id in ipairs(said.left) do
  forget(id)
  -- Granted before; that answer was lost.
  redis.call('ZREM', held, id)
end
for _, id in ipairs(said.held) do redis.call('ZADD', held, now_ms + permit_ttl_ms, id) end
redis.call('ZREMRANGEBYSCORE', held, '-inf', now_ms)
if said.closed_ms > 0 and said.closed_ms > redis.call('PTTL', gate) then
  redis.call('SET', gate, '1', 'PX', said.closed_ms)
end
local now_virtual = tonumber(redis.call('HGET', virtual, 'time') or 0)
local granted = {}
for _, it in ipairs(said.waiting) do
  local id, share, tokens, place = it[1], it[2], it[3], it[4]
  if redis.call('ZSCORE', held, id) then
    -- Granted before; that answer was lost.
    granted[#granted + 1] = id
  elseif not read(id) then
    local arrival, start = string.match(redis.call('HGET', kept, place) or '', '^(%d+) (.*)$')
    if arrival then
      arrival, start = tonumber(arrival), tonumber(start)
      redis.call('HDEL', kept, place)
    else
      arrival = redis.call('HINCRBY', virtual, 'arrivals', 1)
      start = math.max(now_virtual, tonumber(redis.call('ZSCORE', shares, share) or 0))
      redis.call('ZADD', shares, start + math.max(tokens, 1), share)
    end
    redis.call('ZADD', waiting, start, member_of(id, arrival))
    redis.call('HSET', about, id, string.format('%d %d', arrival, tokens))
  end
end

-- What the last minute has seen.
local requests, tokens, oldest = 0, 0, nil
local fields = redis.call('HGETALL', window)
for at = 1, #fields, 2 do
  local kind, from, count = fields[at]:sub(1, 1), tonumber(fields[at]:sub(2)), tonumber(fields[at + 1])
  if from < second - WINDOW_S then
    redis.call('HDEL', window, fields[at])
  else
    if kind == 'r' then requests = requests + count else tokens = tokens + count end
    oldest = math.min(oldest or from, from)
  end
end
local function until_oldest_ms()
  return oldest and (oldest + WINDOW_S + 1) * 1000 - now_ms or LOOK_MS
end

-- Whose turn it is.
local others = {}
local wait_ms = LOOK_MS
local closed_ms = redis.call('PTTL', gate)
if closed_ms > 0 then
  wait_ms = closed_ms
else
  local in_flight = redis.call('ZCARD', held)
  local has_limits = most > 0 or per_minute > 0 or tokens_per_minute > 0
  for _, member in ipairs(redis.call('ZRANGE', waiting, 0, -1)) do
    local id = id_of(member)
    local _, size = read(id)
    if most > 0 and in_flight >= most then
      local first = redis.call('ZRANGE', held, 0, 0, 'WITHSCORES')
      if first[2] then wait_ms = tonumber(first[2]) - now_ms end
      break
    end
    -- One larger than the whole limit goes when nothing else has.
    local is_over = tokens_per_minute > 0 and tokens > 0 and tokens + size > tokens_per_minute
    if is_over or (per_minute > 0 and requests >= per_minute) then
      wait_ms = until_oldest_ms()
      break
    end
    in_flight, requests, tokens = in_flight + 1, requests + 1, tokens + size
    if owner(id) == process then
      granted[#granted + 1] = id
      now_virtual = math.max(now_virtual, tonumber(redis.call('ZSCORE', waiting, member)))
      forget(id)
      if has_limits then
        redis.call('ZADD', held, now_ms + permit_ttl_ms, id)
        redis.call('HINCRBY', window, 'r' .. second, 1)
        redis.call('HINCRBY', window, 't' .. second, size)
      end
    else
      -- The place is left to it.
      others[owner(id)] = true
    end
  end
end
for name in pairs(others) do redis.call('PUBLISH', channel, name) end

redis.call('HSET', virtual, 'time', string.format('%.0f', now_virtual))
-- A share that is not ahead starts where all do.
redis.call('ZREMRANGEBYSCORE', shares, '-inf', string.format('%.0f', now_virtual))
for _, key in ipairs({held, waiting, about, shares, kept, virtual, window, processes}) do
  redis.call('EXPIRE', key, KEEP_S)
end

local over, own = {}, 0
for _, member in ipairs(redis.call('ZRANGE', waiting, 0, -1)) do
  local id = id_of(member)
  if owner(id) == process then
    own = own + 1
    if own > max_waiting then over[#over + 1] = id end
  end
end
wait_ms = math.min(math.max(wait_ms, 1), LOOK_MS)
return {wait_ms, redis.call('ZCARD', processes), second, granted, over}
