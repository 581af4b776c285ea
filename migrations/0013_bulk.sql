-- Asking in bulk: one call, up to 1,000 items, each with the fields of settled.enqueue. There is no second set of rules: what is
-- plain and certainly new is written by statements over all items, in sorted order; every other item goes through
-- settled.decide, as a call of its own would, in the order given.

create type settled.bulk_answer as (
  index       integer,
  verdict     text,
  intent_id   uuid,
  state       text,
  provider_id text,
  sent_at     timestamptz,
  detail      text,
  code        text,
  message     text,
  about       jsonb
);
comment on type settled.bulk_answer is 'What became of one item: a receipt, or code (SQLSTATE), message and detail of its refusal. The index counts from 0.';

create function settled.bulk_limits(calls json, mode text, common jsonb) returns void
language plpgsql stable
as $$
begin
  if mode is null or mode not in ('all_or_nothing', 'per_item') then
    perform settled.invalid('/mode', 'value', 'must be all_or_nothing or per_item');
  elsif common is null or jsonb_typeof(common) <> 'object' then
    perform settled.invalid('/common', 'type', 'must be an object of options');
  elsif calls is null or json_typeof(calls) <> 'array' then
    perform settled.invalid('/items', 'type', 'must be an array');
  elsif octet_length(calls::text) > 8388608 then
    perform settled.invalid('/items', 'size', 'must not be longer than 8 MiB');
  elsif json_array_length(calls) not between 1 and 1000 then
    perform settled.invalid('/items', 'items', 'must hold 1 to 1000 items');
  end if;
end $$;
comment on function settled.bulk_limits(json, text, jsonb) is 'Limits of a bulk call as a whole.';

create function settled.bulk_item(item json, common jsonb) returns settled.call
language plpgsql stable
as $$
declare
  stranger text;
  options jsonb;
  nul boolean;
  bare text;
  bad text;
  code text;
  words text;
  more text;
begin
  if json_typeof(item) <> 'object' then
    perform settled.invalid('', 'type', 'must be an object');
  end if;
  begin
    select k.name into stranger
    from (select k, row_number() over (partition by k) from json_object_keys(item) k) k (name, times)
    where k.name not in ('destination', 'reference', 'payload', 'run_id', 'step', 'options') or k.times > 1 order by k.name limit 1;
    options := coalesce((item -> 'options')::jsonb, '{}');
  exception
    when invalid_text_representation or untranslatable_character then
      -- Nothing reads an item that holds such an escape, so what is told of it is where.
      nul := item::text ~ '(^|[^\\])(\\\\)*\\u0000';
      bare := regexp_replace(item::text, '\\u[dD][89abAB]..\\u[dD][c-fC-F]..', '', 'g');
      bad := case when nul then '\\u0000' else '\\u[dD][89a-fA-F]..' end;
      begin
        -- With another character in its place, all that is judged before the payload.
        perform settled.bulk_item(regexp_replace(bare, bad, '\\uE000', 'g')::json, common);
      exception when sqlstate 'ST400' or sqlstate 'ST401' or sqlstate 'ST403' or sqlstate 'ST404' then
        get stacked diagnostics code = returned_sqlstate, words = message_text, more = pg_exception_detail;
        if code <> 'ST400' or more::jsonb ->> 'field' not like '/payload%' then
          raise exception using errcode = code, message = words, detail = more;
        end if;
      end;
      perform settled.invalid(settled.locate(bare, bad, ''), case when nul then 'nul' else 'encoding' end,
        case when nul then 'must not contain U+0000' else 'must be Unicode text without lone surrogates' end);
    when numeric_value_out_of_range then
      perform settled.invalid('/options', 'range', 'must not hold such a number');
  end;
  if stranger is not null then
    perform settled.invalid('/' || settled.pointer_token(left(stranger, 64)), 'unknown', 'is not a member of an item, or is there twice');
  end if;
  if jsonb_typeof(options) <> 'object' then
    perform settled.invalid('/options', 'type', 'must be an object');
  elsif json_typeof(item -> 'destination') <> 'string' or json_typeof(item -> 'reference') <> 'string' then
    perform settled.invalid(case when json_typeof(item -> 'destination') <> 'string' then '/destination' else '/reference' end,
      'type', 'must be a string');
  elsif json_typeof(item -> 'run_id') not in ('string', 'null') then
    perform settled.invalid('/run_id', 'type', 'must be a string');
  elsif json_typeof(item -> 'step') not in ('number', 'null') or item ->> 'step' !~ '^-?[0-9]{1,18}$' then
    perform settled.invalid('/step', 'type', 'must be a whole number of at most 18 digits');
  end if;
  return settled.whole_call(item ->> 'destination', item ->> 'reference', item -> 'payload', item ->> 'run_id',
    (item ->> 'step')::bigint, options || common);
end $$;
comment on function settled.bulk_item(json, jsonb) is 'One item read the whole way; raises what settled.enqueue would.';

create function settled.bulk_plain(calls json, common jsonb) returns settled.call[]
language sql stable
as $$
  select array_agg(case when c.destination is not null then c end order by i.n)
  from (
      -- Read at once; what a conversion could refuse is left out before. That many digits need that many characters.
      select e.n, case when strpos(e.value::text, '\u') = 0 and json_typeof(e.value) = 'object' then e.value end as value
      from json_array_elements(calls) with ordinality e (value, n) offset 0
    ) i
    left join lateral (
      select r.destination #>> '{}' as destination, r.reference #>> '{}' as reference, r.payload, r.run_id #>> '{}' as run_id,
        (r.step #>> '{}')::bigint as step, coalesce(r.options::jsonb || common, common) as options
      from json_to_record(i.value) r (destination json, reference json, payload json, run_id json, step json, options json)
      where i.value is not null
        and case when json_typeof(r.destination) = 'string' and json_typeof(r.reference) = 'string'
            and coalesce(json_typeof(r.run_id) = 'string', true)
            and coalesce(json_typeof(r.step) = 'number' and r.step::text ~ '^[0-9]{1,18}$', true)
            and coalesce(json_typeof(r.options) = 'object' and r.options::text !~ '[0-9][eE]' and length(r.options::text) < 16384, true)
          then (select count(*) = count(distinct k) and bool_and(k in ('destination', 'reference', 'payload', 'run_id', 'step', 'options'))
            from json_object_keys(i.value) k) end offset 0
    ) r on true
    left join lateral settled.plain_call(r.destination, r.reference, r.payload, r.run_id, r.step, r.options) c on true
$$;
comment on function settled.bulk_plain(json, jsonb) is 'The items in their order as calls in normal form; null where one is not plain.';

create function settled.bulk_accept(calls settled.call[], out accepted uuid[], out undone uuid[])
language plpgsql volatile
set enable_nestloop = off -- the planner expects ten items; a nested loop over a thousand is a million comparisons
as $$
begin
  with ranked as (
    -- Of those that name the same effect or identity the first; the others find it there.
    select c.*, row_number() over (partition by c.tenant, c.scope, c.recipient, c.reference, c.occurrence order by c.n) as of_effect,
      row_number() over (partition by c.tenant, c.run_id, c.step, c.slot order by c.n) as of_identity
    from (select u.*, u.ordinality as n from unnest(calls) with ordinality u) c where c.destination is not null
  ), fresh as materialized (
    select r.*, settled.uuid_v7() as intent, settled.uuid_v7() as request, uuid_send(gen_random_uuid()) as salt
    from ranked r
    where of_effect = 1 and of_identity = 1 and held_for is null and rewind is null and not withdrawn and coalesce(deadline > clock_timestamp(), true)
    order by tenant, scope, recipient, reference, occurrence
  ), print as materialized (
    select f.intent, settled.fingerprint(f.salt, f.destination, f.recipient, f.reference, f.occurrence, f.canonical) as fingerprint from fresh f
  ), i as (
    insert into settled.intents (id, tenant, destination, effect_scope, recipient, reference, occurrence, state, approved, revision,
      fingerprint, canon_version, declarations, due_at, deadline)
    select f.intent, f.tenant, f.destination, f.scope, f.recipient, f.reference, f.occurrence, 'pending', true, 0, p.fingerprint,
      settled.canon_version(), f.declarations, f.due_at, f.deadline
    from fresh f join print p on p.intent = f.intent
    order by f.tenant, f.scope, f.recipient, f.reference, f.occurrence
    on conflict (tenant, effect_scope, recipient, reference, occurrence) where holds_effect do nothing
    returning id, fingerprint
  ), r as (
    insert into settled.requests (id, intent_id, tenant, run_id, step, slot, revision, reference, fingerprint, canon_version, verdict,
      surface, principal, instructed_by, traceparent)
    select f.request, f.intent, f.tenant, f.run_id, f.step, f.slot, 0, f.spelled, i.fingerprint, settled.canon_version(), 'accepted',
      f.surface, f.principal, f.instructed_by, f.traceparent
    from fresh f join i on i.id = f.intent
    order by f.tenant, f.run_id, f.step, f.slot
    on conflict (tenant, run_id, step, slot, revision) do nothing
    returning intent_id
  ), taken as materialized (
    select f.* from fresh f join r on r.intent_id = f.intent
  ), p as (
    insert into settled.payloads (intent_id, salt, body) select t.intent, t.salt, t.payload::text from taken t
  ), q as (
    insert into settled.queue (intent_id, destination, tenant, kind, due_at, deadline)
    select t.intent, t.destination, t.tenant, 'send', t.due_at, t.deadline from taken t
  ), j as (
    insert into settled.journal (intent_id, kind, actor, data)
    select t.intent, 'move', 'producer:' || t.principal, jsonb_build_object('from', null, 'to', 'pending', 'verdict', 'accepted',
      'request', t.request, 'surface', t.surface, 'revision', 0) from taken t
  )
  select array_agg(t.intent order by c.n), (select array_agg(i.id) from i where i.id not in (select r.intent_id from r))
  into accepted, undone
  from generate_series(1, cardinality(calls)) c (n) left join taken t on t.n = c.n;
exception when lock_not_available then
  -- A rival is open. Each goes its own way, and the ones that wait for it are told so.
  accepted := array_fill(null::uuid, array[cardinality(calls)]);
end $$;
comment on function settled.bulk_accept(settled.call[]) is 'Takes effect and identity of every plain call for which both are free; by position the intent, or null. Undone: the effect was free, the identity was not.';

create function settled.bulk_step(n integer, item json, common jsonb, inout c settled.call, out answer settled.bulk_answer)
language plpgsql volatile
as $$
declare
  r settled.receipt;
  state text;
  words text;
  more text;
begin
  if c.destination is null then
    c := settled.bulk_item(item, common);
  else
    r := settled.decide(c);
    answer := row(n - 1, r.verdict, r.intent_id, r.state, r.provider_id, r.sent_at, r.detail, null, null, null);
  end if;
exception
  when sqlstate 'ST400' or sqlstate 'ST401' or sqlstate 'ST403' or sqlstate 'ST404' or sqlstate 'ST409' or sqlstate 'ST410'
    or sqlstate 'ST411' or sqlstate 'ST412' or sqlstate 'ST423' then
    get stacked diagnostics state = returned_sqlstate, words = message_text, more = pg_exception_detail;
    answer := row(n - 1, null, null, null, null, null, null, state, words, nullif(more, '')::jsonb);
end $$;
comment on function settled.bulk_step(integer, json, jsonb, settled.call) is 'Reads an item that is no call yet, else decides it as a call of its own. A refusal is an answer; what is no refusal is raised.';

create function settled.enqueue_many(calls json, mode text default 'all_or_nothing', common jsonb default '{}')
returns setof settled.bulk_answer
language plpgsql volatile security definer
set search_path = pg_catalog, settled, pg_temp
set lock_timeout = '5s'
set standard_conforming_strings = on
set plan_cache_mode = force_generic_plan
set jit = off
as $$
declare
  items json[];
  read settled.call[];
  answers settled.bulk_answer[];
  accepted uuid[];
  undone uuid[];
  refused jsonb;
  step record;
begin
  if current_setting('synchronous_commit') <> 'remote_apply' then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  perform settled.bulk_limits(calls, mode, common);
  read := settled.bulk_plain(calls, common);
  answers := array_fill(null::settled.bulk_answer, array[cardinality(read)]);
  for n in 1..cardinality(read) loop
    if read[n] is null then
      items := coalesce(items, array(select e from json_array_elements(calls) e));
      select * into step from settled.bulk_step(n, items[n], common, null);
      read[n] := step.c;
      answers[n] := step.answer;
    end if;
  end loop;
  select b.accepted, b.undone into accepted, undone from settled.bulk_accept(read) b;
  if undone is not null then
    delete from settled.intents i where i.id = any (undone);
  end if;
  for n in 1..cardinality(read) loop
    if accepted[n] is not null then
      answers[n] := row(n - 1, 'accepted', accepted[n], 'pending', null, null, null, null, null, null);
    elsif answers[n] is null then
      select * into step from settled.bulk_step(n, null, common, read[n]);
      answers[n] := step.answer;
      if (answers[n]).code = 'ST423' then
        perform set_config('lock_timeout', '100ms', true); -- the patience of one call, not of a thousand
      end if;
    end if;
  end loop;
  if mode = 'all_or_nothing' then
    select jsonb_agg(to_jsonb(a) - array['verdict', 'intent_id', 'state', 'provider_id', 'sent_at', 'detail'] order by a.index) into refused
    from unnest(answers) a where a.code is not null;
    if refused is not null then
      raise exception using errcode = 'ST424',
        message = format('batch_refused: nothing was enqueued, since %s of %s items are refused; item %s: %s', jsonb_array_length(refused),
          cardinality(read), refused -> 0 ->> 'index', refused -> 0 ->> 'message'),
        detail = refused::text;
    end if;
  end if;
  return query select a.* from unnest(answers) a;
end $$;
comment on function settled.enqueue_many(json, text, jsonb) is
  'Asks for up to 1,000 effects in the caller''s own transaction. Items are {destination, reference, payload, run_id, step, options}; common options are laid over those of each. all_or_nothing raises ST424 with every refusal by index; per_item answers them.';

revoke all on all functions in schema settled from public;
revoke all on type settled.bulk_answer from public;
