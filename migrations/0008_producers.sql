-- Who may ask. A producer role can enqueue, cancel what was never attempted, and read its own receipts; nothing else.
-- These functions run with the rights of whoever calls them, and only the owner may.

create view settled.receipts with (security_barrier) as
  select r.intent_id, r.reference, i.destination, r.run_id, r.step, r.slot, r.verdict, i.state, i.provider_id, i.sent_at, i.detail
  from settled.requests r join settled.intents i on i.id = r.intent_id
  where r.tenant in (select p.tenant from settled.producers p where p.role = session_user);
revoke all on settled.receipts from public;
comment on view settled.receipts is 'What the tenants of the session''s role have asked for, and how it stands. A repeat shows the intent that stands for it.';
comment on column settled.receipts.verdict is 'What the call was told: accepted or already_requested.';
comment on column settled.receipts.state is 'Of the intent, now. unknown: it may have happened and is being asked about.';

create function settled.administered(act text, more jsonb) returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  insert into settled.journal (kind, actor, data)
  values ('administration', 'owner:' || session_user, jsonb_build_object('act', act) || more)
$$;
comment on function settled.administered(text, jsonb) is 'Writes an act of the owner into the journal.';

create function settled.grant_producer(producer name, for_tenant text) returns boolean
language plpgsql volatile
set search_path = pg_catalog, settled, pg_temp
as $$
begin
  if pg_has_role(producer, (select n.nspowner from pg_namespace n where n.nspname = 'settled'), 'member') then
    raise exception using errcode = 'ST400', message = format('role %I owns the ledger and cannot be a producer', producer),
      detail = '{"field": "/role", "rule": "owner"}';
  end if;
  if for_tenant = 'settled-canary' then
    raise exception using errcode = 'ST400', message = 'tenant settled-canary is reserved for `settled verify`',
      detail = '{"field": "/tenant", "rule": "reserved"}';
  end if;
  insert into settled.producers (role, tenant) values (producer, for_tenant) on conflict do nothing;
  if not found then
    return false;
  end if;
  execute format('grant usage on schema settled to %I', producer);
  execute format('grant execute on function settled.enqueue(text, text, json, text, bigint, jsonb) to %I', producer);
  execute format('grant execute on function settled.enqueue_many(json, text, jsonb) to %I', producer);
  execute format('grant execute on function settled.cancel(uuid, text, jsonb) to %I', producer);
  execute format('grant select on settled.receipts to %I', producer);
  perform settled.administered('grant_producer', jsonb_build_object('role', producer, 'tenant', for_tenant));
  return true;
end $$;
comment on function settled.grant_producer(name, text) is 'Lets a role act for a tenant; false where it already could.';

create function settled.revoke_producer(producer name, for_tenant text) returns boolean
language plpgsql volatile
set search_path = pg_catalog, settled, pg_temp
as $$
begin
  delete from settled.producers p where p.role = producer and p.tenant = for_tenant;
  if not found then
    return false;
  end if;
  if not exists (select from settled.producers p where p.role = producer) and exists (select from pg_roles r where r.rolname = producer) then
    execute format('revoke all on settled.receipts from %I', producer);
    execute format('revoke all on function settled.enqueue(text, text, json, text, bigint, jsonb) from %I', producer);
    execute format('revoke all on function settled.enqueue_many(json, text, jsonb) from %I', producer);
    execute format('revoke all on function settled.cancel(uuid, text, jsonb) from %I', producer);
    execute format('revoke all on schema settled from %I', producer);
  end if;
  perform settled.administered('revoke_producer', jsonb_build_object('role', producer, 'tenant', for_tenant));
  return true;
end $$;
comment on function settled.revoke_producer(name, text) is 'Ends it; with the last tenant the role loses every right on the schema. False where there was none.';

create function settled.grant_destination(for_tenant text, granted text) returns boolean
language plpgsql volatile
set search_path = pg_catalog, settled, pg_temp
as $$
begin
  insert into settled.grants (tenant, destination) values (for_tenant, granted) on conflict do nothing;
  if not found then
    return false;
  end if;
  perform settled.administered('grant_destination', jsonb_build_object('tenant', for_tenant, 'destination', granted));
  return true;
end $$;
comment on function settled.grant_destination(text, text) is 'Lets a tenant use a destination; false where it already could.';

create function settled.revoke_destination(for_tenant text, granted text) returns boolean
language plpgsql volatile
set search_path = pg_catalog, settled, pg_temp
as $$
begin
  delete from settled.grants g where g.tenant = for_tenant and g.destination = granted;
  if not found then
    return false;
  end if;
  perform settled.administered('revoke_destination', jsonb_build_object('tenant', for_tenant, 'destination', granted));
  return true;
end $$;
comment on function settled.revoke_destination(text, text) is 'Ends it; what was accepted before is still served. False where there was none.';

revoke all on all functions in schema settled from public;
