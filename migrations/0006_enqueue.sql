-- The one way in. Callers' transactions, any client: insert first, read after, answer or raise.
-- An answer means that the effect has happened or still may. Everything else raises: ST400 invalid, ST401 identity_required,
-- ST403 not allowed, ST404 destination unknown, ST409 conflict, ST410 expired, ST411 ended_without_effect, ST412 effect_held,
-- ST423 rival_open.

create type settled.receipt as (
  verdict     text,
  intent_id   uuid,
  state       text,
  provider_id text,
  sent_at     timestamptz,
  detail      text
);
comment on type settled.receipt is 'What settled.enqueue answers: accepted, replayed or already_requested, and the intent that stands for the effect.';

create type settled.call as (
  tenant        text,
  principal     text,
  surface       text,
  run_id        text,
  step          bigint,
  slot          text,
  by_key        boolean,
  destination   text,
  channel       text,
  scope         text,
  rules         jsonb,
  declarations  bigint,
  withdrawn     boolean,
  recipient     text,
  spelled       text,
  reference     text,
  occurrence    integer,
  payload       json,
  canonical     text,
  due_at        timestamptz,
  deadline      timestamptz,
  instructed_by jsonb,
  traceparent   text,
  held_for      text,
  generation    text,
  rewind        integer,
  lost_from     timestamptz,
  lost_until    timestamptz
);
comment on type settled.call is 'One call of enqueue, checked and in normal form. Internal.';

create function settled.is_owner() returns boolean
language plpgsql stable
as $$
begin
  return pg_has_role(session_user, (select n.nspowner from pg_catalog.pg_namespace n where n.nspname = 'settled'), 'member');
end $$;
comment on function settled.is_owner() is 'Whether the session belongs to the owner of the ledger (the daemon), not to a producer.';

create function settled.tenant_of_session(named text) returns text
language plpgsql stable
as $$
declare
  tenants text[];
begin
  if named is not null and named !~ '^[A-Za-z0-9._-]{1,63}$' then
    perform settled.invalid('/tenant', 'charset', 'must be 1 to 63 of A-Z a-z 0-9 . _ -');
  end if;
  if named is not null and settled.is_owner() then
    return named;
  end if;
  select array_agg(p.tenant) into tenants from settled.producers p where p.role = session_user;
  if tenants is null and settled.is_owner() then
    perform settled.invalid('/tenant', 'required', 'must be named by the owner of the ledger');
  elsif tenants is null then
    raise exception using errcode = 'ST403', message = format('role %I is not a producer', session_user);
  elsif named is null and cardinality(tenants) > 1 then
    perform settled.invalid('/tenant', 'required', 'must be named, since the role acts for more than one');
  elsif named <> all (tenants) then
    raise exception using errcode = 'ST403', message = format('role %I does not act for tenant %s', session_user, named);
  end if;
  return coalesce(named, tenants[1]);
end $$;
comment on function settled.tenant_of_session(text) is 'Tenant by session_user (SET ROLE does not count); the owner may name any.';

create function settled.identity(inout c settled.call, run_id text, step bigint, caller_key text, slot text)
language plpgsql stable
as $$
begin
  if run_id is null and step is null then
    if caller_key is null then
      raise exception using errcode = 'ST401', message = 'identity_required: give run_id and step, or the option caller_key';
    end if;
    c.by_key := true;
    c.run_id := 'key:' || encode(sha256(convert_to(caller_key, 'UTF8')), 'hex');
    c.step := 0;
  elsif run_id is null then
    perform settled.invalid('/run_id', 'required', 'must be given beside step');
  elsif step is null then
    perform settled.invalid('/step', 'required', 'must be given beside run_id');
  elsif run_id !~ '^[\u0021-\u007e]{1,200}$' then
    perform settled.invalid('/run_id', 'charset', 'must be 1 to 200 visible ASCII characters');
  elsif left(run_id, 4) = 'key:' then
    perform settled.invalid('/run_id', 'reserved', 'must not begin with key:');
  elsif step < 0 then
    perform settled.invalid('/step', 'range', 'must not be negative');
  else
    c.by_key := false;
    c.run_id := run_id;
    c.step := step;
  end if;
  c.slot := coalesce(slot, '');
end $$;
comment on function settled.identity(settled.call, text, bigint, text, text) is 'Run, step and slot of a call; a caller key stands in where no run and step are given.';

create function settled.read_call(destination text, reference text, payload json, run_id text, step bigint, options jsonb) returns settled.call
language plpgsql stable
as $$
declare
  c settled.call;
  d settled.destinations;
begin
  perform settled.check_options(options);
  c.tenant := settled.tenant_of_session(settled.option_text(options, 'tenant', 63, '', ''));
  select * into d from settled.destinations t where t.name = read_call.destination;
  if not found then
    raise exception using errcode = 'ST404', message = 'no such destination: ' || quote_literal(left(coalesce(destination, ''), 63));
  elsif not exists (select from settled.grants g where g.tenant = c.tenant and g.destination = d.name) then
    raise exception using errcode = 'ST403', message = format('tenant %s may not use destination %s', c.tenant, d.name);
  end if;
  c.destination := d.name;
  c.channel := d.channel;
  c.scope := d.effect_scope;
  c.rules := d.rules;
  c.declarations := d.revision;
  c.generation := d.generation;
  -- After a rewind this may have been asked for, and sent, in the history that was lost: it is asked about first.
  select w.number, w.known_until, w.closure_at into c.rewind, c.lost_from, c.lost_until
  from settled.rewinds w where w.ask_first_until > clock_timestamp() order by w.number desc limit 1;
  c.withdrawn := d.withdrawn_at is not null;
  c.principal := coalesce(settled.option_text(options, 'principal', 200, '^[^\u0001-\u001f\u007f]+$', 'must not be empty or contain control characters'), session_user::text);
  c.surface := coalesce(settled.option_text(options, 'surface', 16, '^(sql|http|mcp|cli|amqp|library|settled)$', 'must be sql, http, mcp, cli, amqp, library or settled'), 'sql');
  c := settled.identity(c, run_id, step,
    settled.option_text(options, 'caller_key', 255, '^[\u0021-\u007e]+$', 'must be 1 to 255 visible ASCII characters'),
    settled.option_text(options, 'slot', 320, '^[^\u0001-\u001f\u007f]*$', 'must not contain control characters'));
  perform settled.check_reference(reference, d.rules);
  c.spelled := reference;
  c.reference := lower(reference collate "C");
  c.occurrence := coalesce((nullif(options -> 'occurrence', 'null'))::integer, 1);
  c.due_at := coalesce(settled.option_time(options, 'due_at'), clock_timestamp());
  c.deadline := settled.option_time(options, 'deadline');
  if c.deadline <= c.due_at and options ? 'due_at' then
    perform settled.invalid('/deadline', 'range', 'must be later than due_at');
  end if;
  c.instructed_by := nullif(options -> 'instructed_by', 'null');
  c.traceparent := settled.option_text(options, 'traceparent', 55, '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$', 'must be a W3C traceparent');
  if payload is null then
    perform settled.invalid('/payload', 'required', 'must be given');
  end if;
  perform settled.check_json(payload::text);
  c.payload := payload;
  c.recipient := settled.check_payload(d.channel, payload);
  c.canonical := settled.canonical(d.channel, d.rules -> 'canonical', payload);
  c.held_for := case
    when d.rules ->> 'approval' = 'always' then 'approval_required'
    when c.surface = 'mcp' and c.occurrence > 1 then 'repeat_flagged'
  end;
  return c;
end $$;
comment on function settled.read_call(text, text, json, text, bigint, jsonb) is 'Checks everything that needs no library and brings a call into normal form; raises ST400 to ST404.';

create function settled.rival_open(reference text) returns void
language plpgsql volatile
as $$
begin
  raise exception using errcode = 'ST423',
    message = format('rival_open: %s is being requested in a transaction that is still open', reference);
end $$;
comment on function settled.rival_open(text) is 'Raises ST423: the lock_timeout of enqueue ran out.';

create function settled.first_state(c settled.call) returns text
language sql immutable
as $$ select case when c.rewind is not null then 'unknown' when c.held_for is null then 'pending' else 'held' end $$;
comment on function settled.first_state(settled.call) is 'Where an accepted call begins: asked about first after a rewind, else held by a policy, else pending.';

create function settled.escalate_held(c settled.call, intent uuid) returns void
language plpgsql volatile
as $$
begin
  insert into settled.escalations (id, subject, intent_id, destination, tenant, reason, cause, summary)
  values (settled.uuid_v7(), 'intent', intent, c.destination, c.tenant, c.held_for, c.held_for || '/' || c.destination,
    c.spelled || ' for ' || c.destination || case when c.held_for = 'repeat_flagged'
      then ': occurrence ' || c.occurrence || ' asked for by a model' else ' waits for approval' end);
end $$;
comment on function settled.escalate_held(settled.call, uuid) is 'Tells people of an intent that a policy holds.';

create function settled.accept(c settled.call, identity_revision integer) returns uuid
language plpgsql volatile
as $$
declare
  intent uuid := settled.uuid_v7();
  request uuid := settled.uuid_v7();
  salt bytea := uuid_send(gen_random_uuid());
  print bytea := settled.fingerprint(salt, c.destination, c.recipient, c.reference, c.occurrence, c.canonical);
  begins text := settled.first_state(c);
begin
  -- Statements of one row each: for one call they cost less than one statement with five common table expressions.
  insert into settled.intents (id, tenant, destination, effect_scope, recipient, reference, occurrence, state, approved, revision,
    fingerprint, canon_version, declarations, due_at, deadline, rewind)
  values (intent, c.tenant, c.destination, c.scope, c.recipient, c.reference, c.occurrence, begins, c.held_for is null, identity_revision,
    print, settled.canon_version(), c.declarations, c.due_at, c.deadline, coalesce(c.rewind, 0))
  on conflict (tenant, effect_scope, recipient, reference, occurrence) where holds_effect do nothing;
  if not found then
    return null;
  end if;
  insert into settled.requests (id, intent_id, tenant, run_id, step, slot, revision, reference, fingerprint, canon_version, verdict,
    surface, principal, instructed_by, traceparent)
  values (request, intent, c.tenant, c.run_id, c.step, c.slot, identity_revision, c.spelled, print, settled.canon_version(),
    'accepted', c.surface, c.principal, c.instructed_by, c.traceparent)
  on conflict (tenant, run_id, step, slot, revision) do nothing;
  if not found then
    delete from settled.intents i where i.id = intent; -- the effect was free, but the identity is taken
    return null;
  end if;
  insert into settled.payloads (intent_id, salt, body) values (intent, salt, c.payload::text);
  insert into settled.queue (intent_id, destination, tenant, kind, due_at, deadline)
  values (intent, c.destination, c.tenant, case begins when 'held' then 'wait' when 'unknown' then 'ask' else 'send' end,
    case when begins = 'unknown' then clock_timestamp() else c.due_at end, c.deadline);
  insert into settled.journal (intent_id, kind, actor, data)
  values (intent, 'move', 'producer:' || c.principal, jsonb_build_object('from', null, 'to', begins, 'verdict', 'accepted',
    'request', request, 'surface', c.surface, 'revision', identity_revision));
  if c.rewind is not null then
    insert into settled.journal (intent_id, kind, actor, data)
    values (intent, 'history', 'ledger', jsonb_build_object('rewind', c.rewind, 'lost_from', c.lost_from, 'lost_until', c.lost_until,
      'generation', c.generation));
  elsif c.held_for is not null then
    perform settled.escalate_held(c, intent);
  end if;
  return intent;
exception when lock_not_available then
  perform settled.rival_open(c.reference);
end $$;
comment on function settled.accept(settled.call, integer) is 'Takes effect and identity, both or none, with payload, queue row, journal and escalation. Null: one of them is taken.';

create function settled.accept_repeat(c settled.call, identity_revision integer, intent settled.intents, compared boolean) returns boolean
language plpgsql volatile
as $$
declare
  written boolean;
begin
  with r as (
    insert into settled.requests (id, intent_id, tenant, run_id, step, slot, revision, reference, fingerprint, canon_version, verdict,
      surface, principal, instructed_by, traceparent)
    select settled.uuid_v7(), i.id, c.tenant, c.run_id, c.step, c.slot, identity_revision, c.spelled,
      case when compared then intent.fingerprint else '' end, intent.canon_version, 'already_requested', c.surface, c.principal,
      c.instructed_by, c.traceparent
    from (select n.id from settled.intents n where n.id = intent.id for key share) i -- nobody deletes it meanwhile
    on conflict do nothing returning id
  ), j as (
    insert into settled.journal (intent_id, kind, actor, data)
    select intent.id, 'request', 'producer:' || c.principal, jsonb_build_object('verdict', 'already_requested',
      'request', r.id, 'surface', c.surface) from r
  )
  select count(*) = 1 into written from r;
  return written;
exception when lock_not_available then
  perform settled.rival_open(c.reference);
end $$;
comment on function settled.accept_repeat(settled.call, integer, settled.intents, boolean) is 'Writes down that somebody else asked for the same effect. False: the identity is taken.';

create function settled.compare(c settled.call, i settled.intents, out same boolean, out pointers text[])
language plpgsql stable
as $$
declare
  stored settled.payloads;
  earlier text;
  now_given text := c.canonical;
  sets jsonb := (select jsonb_agg('/payload' || t) from jsonb_array_elements_text(c.rules -> 'canonical' -> 'sets') t);
begin
  select * into stored from settled.payloads p where p.intent_id = i.id;
  if c.destination = i.destination and c.recipient = i.recipient and c.reference = i.reference and c.occurrence = i.occurrence then
    if stored.body is null then
      return; -- purged: content not compared
    elsif i.canon_version = settled.canon_version() and i.declarations = c.declarations
        and i.fingerprint = settled.fingerprint(stored.salt, c.destination, c.recipient, c.reference, c.occurrence, c.canonical) then
      same := true;
      return;
    end if;
  end if;
  -- Other content, or other rules: both sides anew, from what was given.
  begin
    earlier := settled.canonical(c.channel, c.rules -> 'canonical', stored.body::json);
  exception when others then -- what is stored does not keep today's declarations: compared without any
    earlier := settled.canonical_value(stored.body::json, '', null);
    now_given := settled.canonical_value(c.payload, '', null);
    sets := null;
  end;
  pointers := array_remove(array[
      case when c.destination <> i.destination then '/destination' end,
      case when c.reference <> i.reference then '/reference' end,
      case when c.occurrence <> i.occurrence then '/occurrence' end,
      case when c.recipient <> i.recipient then '/payload/to' end], null)
    || array(select d from settled.differences(earlier::json, now_given::json, '/payload', sets) d where stored.body is not null limit 32);
  same := cardinality(pointers) = 0;
end $$;
comment on function settled.compare(settled.call, settled.intents) is 'Whether a call means what an intent means; null where the payload is purged. Pointers of what differs.';

create function settled.refuse(code text, words text, i settled.intents, more jsonb) returns void
language plpgsql volatile
as $$
begin
  raise exception using errcode = code, message = words,
    detail = (jsonb_build_object('intent_id', i.id, 'state', i.state) || more)::text;
end $$;
comment on function settled.refuse(text, text, settled.intents, jsonb) is 'Raises about an earlier intent of the same tenant; the detail is JSON.';

create function settled.never_in_doubt(i settled.intents) returns boolean
language sql stable
as $$
  select i.state in ('failed', 'cancelled') and not i.holds_effect and i.rewind = 0 and not 'history_lost' = any (i.marks) and not exists (
    select from settled.attempts a where a.intent_id = i.id and (a.outcome is null or a.outcome in ('sent', 'ambiguous')))
$$;
comment on function settled.never_in_doubt(settled.intents) is 'Ended without effect, and every attempt was hard-negative: its call may be corrected.';

create function settled.answer(verdict text, i settled.intents, compared boolean) returns settled.receipt
language plpgsql stable
as $$
begin
  return row(verdict, i.id, i.state, i.provider_id, i.sent_at,
    nullif(concat_ws('; ', case when not compared then 'content not compared' end,
      case i.state when 'held' then 'waits for a person' else i.detail end), ''))::settled.receipt;
end $$;
comment on function settled.answer(text, settled.intents, boolean) is 'A receipt about an intent.';

create function settled.replay(c settled.call, i settled.intents) returns settled.receipt
language plpgsql volatile
as $$
declare
  found_same boolean;
  differing text[];
begin
  select x.same, x.pointers into found_same, differing from settled.compare(c, i) x;
  if found_same = false then
    if settled.never_in_doubt(i) then
      return null; -- a correction
    end if;
    perform settled.refuse('ST409', format('conflict: this %s was used for %s with other content (intent %s, %s); nothing was enqueued',
        case when c.by_key then 'caller key' else 'run, step and slot' end, i.reference, i.id, i.state), i,
      jsonb_build_object('kind', case when c.by_key then 'caller_key' else 'identity' end, 'pointers', differing));
  elsif i.state in ('failed', 'cancelled') then
    perform settled.refuse('ST411', format('ended_without_effect: intent %s of this call is %s; nothing will be sent', i.id, i.state), i, '{}');
  end if;
  return settled.answer('replayed', i, found_same is not null);
end $$;
comment on function settled.replay(settled.call, settled.intents) is 'The same identity again: replayed, or raises. Null: other content after a hard-negative end, a correction.';

create function settled.repeat(c settled.call, identity_revision integer, i settled.intents) returns settled.receipt
language plpgsql volatile
as $$
declare
  found_same boolean;
  differing text[];
begin
  select x.same, x.pointers into found_same, differing from settled.compare(c, i) x;
  if found_same = false then
    perform settled.refuse('ST409', format('conflict: %s was already requested with other content (intent %s, %s); nothing was enqueued',
      i.reference, i.id, i.state), i, jsonb_build_object('kind', 'effect', 'pointers', differing));
  elsif i.state in ('failed', 'cancelled') then
    perform settled.refuse('ST412', format('effect_held: intent %s is %s but may have had its effect; a person must say so first', i.id, i.state), i, '{}');
  elsif not settled.accept_repeat(c, identity_revision, i, found_same is not null) then
    return null; -- the identity was taken meanwhile
  end if;
  return settled.answer('already_requested', i, found_same is not null);
end $$;
comment on function settled.repeat(settled.call, integer, settled.intents) is 'Another identity, the same effect: already_requested, or raises. Null: look again.';

create function settled.decide(c settled.call) returns settled.receipt
language plpgsql volatile
as $$
declare
  answer settled.receipt;
  taken uuid;
  i settled.intents;
  newest integer;
  identity_revision integer := 0;
  barred boolean := c.withdrawn or coalesce(c.deadline <= clock_timestamp(), false);
begin
  for round in 1..5 loop
    if not barred then
      taken := settled.accept(c, identity_revision);
      if taken is not null then
        return row('accepted', taken, settled.first_state(c), null, null,
          case when c.rewind is not null then 'asked about first: the database lost history'
            when c.held_for is not null then 'waits for a person' end)::settled.receipt;
      end if;
    end if;
    -- No locks: what is read here may move on, and an answer is about the moment it was read.
    select r.revision into newest from settled.requests r
    where r.tenant = c.tenant and r.run_id = c.run_id and r.step = c.step and r.slot = c.slot order by r.revision desc limit 1;
    if newest >= identity_revision then
      select n.* into strict i from settled.requests r join settled.intents n on n.id = r.intent_id
      where r.tenant = c.tenant and r.run_id = c.run_id and r.step = c.step and r.slot = c.slot and r.revision = newest;
      answer := settled.replay(c, i);
      if answer.verdict is not null then
        return answer;
      end if;
      identity_revision := 1 + greatest(newest, i.revision);
      continue;
    end if;
    select * into i from settled.intents n where n.tenant = c.tenant and n.effect_scope = c.scope and n.recipient = c.recipient
      and n.reference = c.reference and n.occurrence = c.occurrence and n.holds_effect;
    if found then
      answer := settled.repeat(c, identity_revision, i);
      if answer.verdict is not null then
        return answer;
      end if;
    elsif c.withdrawn then
      raise exception using errcode = 'ST404', message = format('destination %s is withdrawn', c.destination);
    elsif barred then
      raise exception using errcode = 'ST410', message = 'expired: the deadline has passed; nothing was enqueued';
    end if;
  end loop;
  raise exception using errcode = 'ST423', message = 'rival_open: the effect keeps changing hands; try again';
end $$;
comment on function settled.decide(settled.call) is 'Insert first, read after, a few rounds; never null.';

create function settled.whole_call(destination text, reference text, payload json, run_id text, step bigint, options jsonb)
returns settled.call
language plpgsql stable
as $$
declare
  words text;
  more text;
begin
  return settled.read_call(destination, reference, payload, run_id, step, options);
exception
  when sqlstate 'ST400' then -- raised anew from here, so that the server log gets no context of 32 levels
    get stacked diagnostics words = message_text, more = pg_exception_detail;
    raise exception using errcode = 'ST400', message = words, detail = more;
  when invalid_text_representation or untranslatable_character then
    raise exception using errcode = 'ST400', message = '/payload: must be Unicode text without lone surrogates',
      detail = jsonb_build_object('field', settled.locate(
        regexp_replace(payload::text, '\\u[dD][89abAB]..\\u[dD][c-fC-F]..', '', 'g'), '\\u[dD][89a-fA-F]..'), 'rule', 'encoding')::text;
end $$;
comment on function settled.whole_call(text, text, json, text, bigint, jsonb) is 'settled.read_call, its refusals without the way to them.';

create function settled.enqueue(destination text, reference text, payload json, run_id text default null, step bigint default null,
  options jsonb default '{}') returns settled.receipt
language plpgsql volatile security definer
set search_path = pg_catalog, settled, pg_temp
set lock_timeout = '5s'
set standard_conforming_strings = on
set plan_cache_mode = force_generic_plan -- every statement here looks up by key
as $$
declare
  c settled.call;
begin
  -- Durable whatever the session says; a SET clause of the function would be undone before COMMIT.
  if current_setting('synchronous_commit') <> 'remote_apply' then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  select * into c from settled.plain_call(enqueue.destination, enqueue.reference, enqueue.payload, enqueue.run_id, enqueue.step,
    coalesce(enqueue.options, '{}'));
  if c.destination is null then
    c := settled.whole_call(destination, reference, payload, run_id, step, coalesce(options, '{}'));
  end if;
  return settled.decide(c);
end $$;
comment on function settled.enqueue(text, text, json, text, bigint, jsonb) is
  'Asks for an effect in the caller''s own transaction. Answers accepted, replayed or already_requested; everything else raises. The signature is frozen; new things go into options.';

create function settled.cancel(intent_id uuid, reason text, options jsonb default '{}') returns text
language plpgsql volatile security definer
set search_path = pg_catalog, settled, pg_temp
set lock_timeout = '5s'
set standard_conforming_strings = on
as $$
declare
  i settled.intents;
  actor text := case when settled.is_owner() then 'owner:' else 'producer:' end || session_user;
  named_tenant text;
begin
  if current_setting('synchronous_commit') <> 'remote_apply' then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  if coalesce(btrim(reason), '') = '' or length(reason) > 500 or reason ~ '[\u0001-\u001f\u007f]' then
    perform settled.invalid('/reason', 'required', 'must be 1 to 500 characters, none of control');
  end if;
  if coalesce(options, '{}') <> '{}' then
    if not settled.is_owner() or options - array['tenant', 'actor'] <> '{}' then
      raise exception using errcode = 'ST403', message = 'options tenant and actor are for the owner of the ledger, others are unknown';
    end if;
    if options ->> 'actor' !~ '^[a-z]+:[^\u0001-\u001f\u007f]{1,200}$' then
      perform settled.invalid('/actor', 'charset', 'must say what acts and who, such as producer:shop');
    end if;
    named_tenant := options ->> 'tenant';
    actor := coalesce(options ->> 'actor', actor);
  end if;
  select * into i from settled.intents n where n.id = cancel.intent_id
    and (n.tenant = named_tenant or named_tenant is null and settled.is_owner()
      or named_tenant is null and n.tenant in (select p.tenant from settled.producers p where p.role = session_user))
  for no key update;
  if not found then
    raise exception using errcode = 'ST404', message = format('no such intent: %s', intent_id);
  elsif i.state = 'cancelled' then
    return i.state;
  elsif i.state not in ('held', 'pending') or i.attempt > 0 or i.rewind > 0 then
    perform settled.refuse('ST413', format('cannot be cancelled: intent %s is %s%s', i.id, i.state,
      case when i.attempt > 0 then ' and was attempted; a person decides'
        when i.rewind > 0 then ' and may have been attempted before the database lost history; a person decides' else '' end), i, '{}');
  end if;
  update settled.intents n set state = 'cancelled', holds_effect = false, settled_at = clock_timestamp(),
    version = n.version + 1, evidence = n.evidence + 1, detail = case when actor like 'producer:%' then 'cancelled by its producer' else 'cancelled by a person' end where n.id = i.id;
  delete from settled.queue q where q.intent_id = i.id;
  update settled.escalations e set closed_at = clock_timestamp(), closed_by = actor, resolution = 'cancelled', version = e.version + 1
  where e.intent_id = i.id and e.subject = 'intent' and e.closed_at is null;
  insert into settled.journal (intent_id, kind, actor, data)
  values (i.id, 'act', actor, jsonb_build_object('act', 'cancel', 'statement', jsonb_build_object('statement', 'cancelled'), 'reason', reason)),
    (i.id, 'move', actor, jsonb_build_object('from', i.state, 'to', 'cancelled'));
  return 'cancelled';
exception when lock_not_available then
  raise exception using errcode = 'ST423', message = format('rival_open: intent %s is held by a transaction that is still open', intent_id);
end $$;
comment on function settled.cancel(uuid, text, jsonb) is 'Withdraws what was never attempted; answers cancelled, or raises ST413.';

revoke all on all functions in schema settled from public;
revoke all on type settled.receipt from public;
revoke all on type settled.call from public;
