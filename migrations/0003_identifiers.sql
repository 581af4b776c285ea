-- Identifiers that sort by time, on every supported server (uuidv7() itself arrives with Postgres 18).
create function settled.uuid_v7() returns uuid
language sql volatile parallel safe
set search_path = pg_catalog, pg_temp
as $$
  -- 48 bits of milliseconds, the version, 12 bits of the fraction (RFC 9562 section 6.2, method 3); the variant and
  -- 62 random bits stay as gen_random_uuid() made them.
  select encode(
    overlay(uuid_send(gen_random_uuid())
      placing int8send(((t.micros / 1000) << 16) | 28672 | ((t.micros % 1000) * 4096 / 1000)) from 1 for 8),
    'hex')::uuid
  from (select (extract(epoch from clock_timestamp()) * 1000000)::bigint as micros) t
$$;
revoke all on function settled.uuid_v7() from public;
comment on function settled.uuid_v7() is 'UUID version 7 (RFC 9562) with microseconds; for every id of the ledger.';
