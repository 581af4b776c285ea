-- The short way through the checks. Most calls are plain: known options, ASCII, no escaped code points, nothing declared. These
-- functions know such a call when they see one, and then answer exactly what settled.read_call would, at a fifth of its cost.
-- Whatever they do not know they leave to it, and so they raise nothing. A test compares the two on calls made at random.
-- All but one are single expressions of SQL without SET clauses, which become part of the statement that calls them.

create function settled.plain_scalar(t text) returns text
language sql stable parallel safe
as $$
  select case
    when t ~ '^"([^ \\]|[^ \\][^\\]*[^ \\])?"$' or t in ('true', 'false', 'null') then t
    when t ~ '^-?[1-9][0-9]*$' then rtrim(t, '0') || 'e' || length(t) - length(rtrim(t, '0'))
    when left(t, 1) = '"' then to_json(btrim(t::json #>> '{}', E'\t\n\r '))::text
    when t ~ '^[-0-9]' and t !~ '[eE]' then settled.canonical_number(t, '') -- only an exponent can be refused
  end
$$;
comment on function settled.plain_scalar(text) is 'Canonical form of a string, number or literal of a plain payload, by its JSON text; null where it takes the whole way.';

create function settled.plain_value(v json, level integer) returns text
language plpgsql stable parallel safe
as $$
declare
  name text;
  earlier text;
  t text;
  body text := '';
begin
  if level > 8 then
    return null;
  end if;
  if json_typeof(v) = 'array' then
    for t in select e.value::text from json_array_elements(v) e loop
      t := case when left(t, 1) in ('{', '[') then settled.plain_value(t::json, level + 1) else settled.plain_scalar(t) end;
      if t is null then
        return null;
      end if;
      body := body || ',' || t;
    end loop;
    return '[' || substr(body, 2) || ']';
  end if;
  for name, t in select e.key, e.value::text from json_each(v) e order by e.key collate "C" loop
    t := case when left(t, 1) in ('{', '[') then settled.plain_value(t::json, level + 1) else settled.plain_scalar(t) end;
    if t is null or name = earlier then
      return null;
    end if;
    earlier := name;
    body := body || ',' || to_json(name)::text || ':' || t;
  end loop;
  return '{' || substr(body, 2) || '}';
end $$;
comment on function settled.plain_value(json, integer) is 'Canonical form of an object or array inside a plain payload; null where it takes the whole way.';

create function settled.plain_object(v json) returns setof text
language sql stable parallel safe
as $$
  select '{' || coalesce(string_agg(m.member, ',' order by m.name collate "C"), '') || '}'
  from (
    select e.name, to_json(e.name)::text || ':'
      || case when left(e.t, 1) in ('{', '[') then settled.plain_value(e.t::json, 2) else settled.plain_scalar(e.t) end as member
    from (select j.key as name, j.value::text as t from json_each(v) j offset 0) e offset 0
  ) m
  having count(*) = count(m.member) and count(*) = count(distinct m.name collate "C")
$$;
comment on function settled.plain_object(json) is 'Canonical form of an object in a plain payload; no row where it takes the whole way.';

create function settled.plain_payload(v json, skipped text) returns setof text
language sql stable parallel safe
as $$
  select '{' || coalesce(string_agg(m.member, ',' order by m.name collate "C") filter (where m.name is distinct from skipped), '') || '}'
  from (
    select e.name, to_json(e.name)::text || ':' || case left(e.t, 1)
        when '{' then (select o.canonical from settled.plain_object(e.t::json) o (canonical))
        when '[' then settled.plain_value(e.t::json, 1)
        else settled.plain_scalar(e.t)
      end as member
    from (select j.key as name, j.value::text as t from json_each(v) j offset 0) e offset 0
  ) m
  having count(*) = count(m.member) and count(*) = count(distinct m.name collate "C")
$$;
comment on function settled.plain_payload(json, text) is 'Canonical form of a plain payload without one member; no row where it takes the whole way.';

create function settled.plain_time(given text) returns timestamptz
language plpgsql stable parallel safe
as $$
begin
  return case when given ~ '^20\d\d-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?Z$'
    then given::timestamptz end;
end $$;
comment on function settled.plain_time(text) is 'A point in time in UTC, of a day that every month has; null for everything else.';

create function settled.plain_options(options jsonb, owner boolean) returns boolean
language plpgsql stable
as $$
declare
  due_at text := options ->> 'due_at';
  deadline text := options ->> 'deadline';
begin
  return (owner or not options ?| array['principal', 'surface'])
    and coalesce(options ->> 'principal' ~ '^[^\u0001-\u001f\u007f]{1,200}$', true)
    and coalesce(options ->> 'surface' in ('sql', 'http', 'mcp', 'cli', 'amqp', 'library', 'settled'), true)
    and coalesce(options ->> 'slot' ~ '^[^\u0001-\u001f\u007f]{0,255}$', true)
    and coalesce(options ->> 'caller_key' ~ '^[\u0021-\u007e]{1,255}$', true)
    and coalesce(options ->> 'traceparent' ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$', true)
    and (due_at is null or settled.plain_time(due_at) is not null)
    and (deadline is null or settled.plain_time(deadline) is not null)
    and coalesce(settled.plain_time(due_at) < settled.plain_time(deadline), true);
end $$;
comment on function settled.plain_options(jsonb, boolean) is 'Whether options, all of them strings, are in order beside the tenant.';

create function settled.plain_recipient(channel text, payload json) returns text
language plpgsql stable parallel safe
as $$
declare
  recipient text := payload ->> 'to';
  other text := payload ->> 'text';
begin
  if exists (select from json_each(payload) e where json_typeof(e.value) <> 'string'
      or e.key not in ('to', 'text') and (channel <> 'smtp' or e.key not in ('subject', 'html'))
      or e.key <> 'to' and btrim(e.value #>> '{}') = '')
    or other is null and (channel <> 'smtp' or payload -> 'html' is null)
  then
    return null;
  elsif channel = 'smtp' then
    if payload ->> 'subject' ~ '^[^\u0001-\u001f\u007f]+$' and length(payload ->> 'subject') <= 500 -- a plain payload is ASCII
      and recipient ~ '^[a-z0-9]+([._+-][a-z0-9]+)*@[a-z0-9]+([.-][a-z0-9]+)*$'
      and length(recipient) <= 120 and recipient !~ '[^.@]{64}' and length(split_part(recipient, '@', 1)) <= 64
    then
      return recipient;
    end if;
  elsif length(other) <= 1600 and recipient ~ '^\+[1-9][0-9]{6,14}$' then
    return recipient;
  end if;
  return null;
end $$;
comment on function settled.plain_recipient(text, json) is 'Recipient of a plain email or text message whose members are all in order; null where it takes the whole way.';

create function settled.plain_call(destination text, reference text, payload json, run_id text, step bigint, options jsonb)
returns setof settled.call
language sql stable
as $$
  with me as materialized (
    select pg_has_role(session_user, n.nspowner, 'member') as owner from pg_catalog.pg_namespace n where n.nspname = 'settled'
  )
  select t.tenant, coalesce(g.options ->> 'principal', session_user::text), coalesce(g.options ->> 'surface', 'sql'),
    coalesce(run_id, 'key:' || encode(sha256(convert_to(g.options ->> 'caller_key', 'UTF8')), 'hex')), coalesce(step, 0),
    coalesce(g.options ->> 'slot', ''), run_id is null, d.name, d.channel, d.effect_scope, d.rules, d.revision,
    d.withdrawn_at is not null, g.recipient, reference, lower(reference collate "C"), 1, payload, p.canonical,
    coalesce(settled.plain_time(g.options ->> 'due_at'), clock_timestamp()), settled.plain_time(g.options ->> 'deadline'),
    null::jsonb, g.options ->> 'traceparent', case when d.rules ->> 'approval' = 'always' then 'approval_required' end,
    d.generation, null::integer, null::timestamptz, null::timestamptz
  from settled.destinations d, me,
    lateral (
      -- Nothing below may be computed from what is not known to be harmless: a CASE is the only order that SQL keeps.
      select w.options, w.body, case d.channel when 'webhook' then '' when 'smtp' then settled.plain_recipient(d.channel, w.body)
          when 'sms' then settled.plain_recipient(d.channel, w.body) end as recipient
      from (
        select case when jsonb_typeof(options) = 'object' and pg_column_size(options) <= 16384
            and not jsonb_path_exists(options, '$.* ? (@.type() != "string")')
            and options - array['tenant', 'principal', 'surface', 'slot', 'caller_key', 'due_at', 'deadline', 'traceparent'] = '{}'
            then options end as options,
          case when json_typeof(payload) = 'object' and octet_length(t.body) <= 65536 and octet_length(t.body) = length(t.body)
            and strpos(t.body, '\u') = 0
            -- An upper bound of the number of values; half as many bytes cannot hold them.
            and (octet_length(t.body) < 4096 or octet_length(t.body) - octet_length(translate(t.body, ',[{', '')) < 4096)
            then payload end as body
        from (select payload::text as body offset 0) t offset 0
      ) w
      where w.options is not null and w.body is not null offset 0
    ) g,
    lateral (
      select coalesce(g.options ->> 'tenant',
        (select min(o.tenant) from settled.producers o where o.role = session_user having count(*) = 1)) as tenant offset 0
    ) t,
    lateral settled.plain_payload(g.body, case when d.channel in ('smtp', 'sms') then 'to' end) p (canonical)
  where d.name = destination
    and reference ~ '^[A-Za-z0-9._-]{1,120}$' and d.rules ->> 'reference_pattern' is null
    and coalesce(d.rules -> 'canonical', '{}') in ('{}', '{"money":[],"times":[],"sets":[],"volatile":[],"defaults":{}}')
    and g.recipient is not null
    and case when run_id is null then step is null and g.options ->> 'caller_key' is not null
      else step >= 0 and run_id ~ '^[\u0021-\u007e]{1,200}$' and left(run_id, 4) <> 'key:' end
    and t.tenant ~ '^[A-Za-z0-9._-]{1,63}$'
    and (not g.options ? 'tenant' or me.owner
      or exists (select from settled.producers o where o.role = session_user and o.tenant = t.tenant))
    and exists (select from settled.grants a where a.tenant = t.tenant and a.destination = d.name)
    and (g.options = jsonb_build_object('tenant', t.tenant) or settled.plain_options(g.options, me.owner))
    and not exists (select from settled.rewinds w where w.ask_first_until > clock_timestamp())
$$;
comment on function settled.plain_call(text, text, json, text, bigint, jsonb) is 'A plain call in normal form, as settled.read_call makes it; no row for every other one.';

revoke all on all functions in schema settled from public;
