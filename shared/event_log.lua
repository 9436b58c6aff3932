-- The one writer of event streams. Everything happens in one step, so that the order in the
-- stream, the order on the channel and the epoch's rules cannot part.
--
-- KEYS: stream, meta (hash: run_id, epoch, state)
-- ARGV: operation, channel, epoch, ttl_s, final_ttl_s, then triples: name, data, is_terminal
-- state: opening (the epoch waits for its snapshot), open, ended
--
-- Answers {word, top epoch, last id}; words: ok, lost, stale, ahead, opening, exists, ended.

local stream, meta = KEYS[1], KEYS[2]
local operation, channel, epoch = ARGV[1], ARGV[2], tonumber(ARGV[3])
local ttl_s, final_ttl_s = tonumber(ARGV[4]), tonumber(ARGV[5])

local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local known = redis.call('HMGET', meta, 'run_id', 'epoch', 'state')
local is_lost = known[1] ~= run_id
local top = tonumber(known[2] or 0)
local state = known[3]

local function keep(seconds)
  redis.call('EXPIRE', stream, seconds)
  redis.call('EXPIRE', meta, seconds)
end

local function append()
  local id
  for i = 6, #ARGV, 3 do
    local name, data, is_terminal = ARGV[i], ARGV[i + 1], ARGV[i + 2]
    id = redis.call('XADD', stream, top .. '-*', 'event', name, 'data', data)
    redis.call('PUBLISH', channel, id .. '\n' .. name .. '\n' .. data)
    if is_terminal == '1' then
      redis.call('HSET', meta, 'state', 'ended')
      keep(final_ttl_s)
      return {'ok', top, id}
    end
  end
  keep(ttl_s)
  return {'ok', top, id}
end

-- A stream with its snapshot in one step, for a turn of which no more is known than that.
if operation == 'create' then
  if not is_lost then return {'exists', top} end
  redis.call('DEL', stream, meta)
  redis.call('HSET', meta, 'run_id', run_id, 'epoch', epoch, 'state', 'open')
  top = epoch
  return append()
end

-- Mark the epoch as opening: from now on lower epochs are refused.
if operation == 'open' then
  if is_lost then
    redis.call('DEL', stream, meta)
  elseif state == 'ended' then
    return {'ended', top}
  elseif epoch < top then
    return {'stale', top}
  elseif epoch == top then
    return {state == 'opening' and 'opening' or 'exists', top}
  end
  redis.call('HSET', meta, 'run_id', run_id, 'epoch', epoch, 'state', 'opening')
  redis.call('EXPIRE', meta, ttl_s)
  return {'opening', epoch}
end

if is_lost then return {'lost', top} end
if state == 'ended' then return {'ended', top} end
if epoch > 0 and epoch < top then return {'stale', top} end
if epoch > top then return {'ahead', top} end

-- The snapshot that opens the epoch to all other events; only one ever stands.
if operation == 'snapshot' then
  if state ~= 'opening' then return {'exists', top} end
  redis.call('HSET', meta, 'state', 'open')
  return append()
end

if state == 'opening' then return {'opening', top} end
return append()
