-- Identifiers that sort by time, on every supported server (uuidv7() itself arrives with Postgres 18).
create function settled.uuid_v7() returns uuid
language sql volatile parallel safe
as $$
  -- 48 bits of milliseconds and 12 bits of the fraction are one number (RFC 9562 section 6.2, method 3), with the version
  -- between them; the variant and 62 random bits stay as gen_random_uuid() made them. One expression and no SET clause:
  -- such a function becomes part of the statement that calls it.
  select (overlay(lpad(to_hex((date_part('epoch', clock_timestamp()) * 1000000)::bigint * 4096 / 1000), 15, '0') placing '7' from 13 for 0)
    || substr(gen_random_uuid()::text, 20))::uuid
$$;
revoke all on function settled.uuid_v7() from public;
comment on function settled.uuid_v7() is 'UUID version 7 (RFC 9562) with microseconds; for every id of the ledger.';
