-- The schema and everything that is configured rather than asked for.
-- The canonical form needs NFC, which Postgres offers in UTF8 databases only.
do $$
begin
  if current_setting('server_encoding') <> 'UTF8' then
    raise exception 'settled needs a database with encoding UTF8, this one has %', current_setting('server_encoding')
      using errcode = '0A000', hint = 'create database … template template0 encoding ''UTF8''';
  end if;
end $$;

create schema settled;
revoke all on schema settled from public;
comment on schema settled is 'The ledger: requests, intents, attempts, evidence, decisions.';

create table settled.instance (
  singleton         boolean primary key default true check (singleton),
  name              text not null,
  region            text not null,
  system_identifier text not null,
  timeline          integer not null,
  history           uuid not null default gen_random_uuid(),
  created_at        timestamptz not null default clock_timestamp()
);
comment on table settled.instance is 'Which installation this database belongs to; one row.';
comment on column settled.instance.name is 'Equal to [instance] name in settled.toml, or the daemon does not dispatch.';
comment on column settled.instance.region is 'Part of every key; never changes.';
comment on column settled.instance.system_identifier is 'Of the Postgres cluster, at the first start or at the last rewind that was noticed; another one is a restore or a copy.';
comment on column settled.instance.timeline is 'WAL timeline at that time; another one means that a standby was promoted or a backup restored.';
comment on column settled.instance.history is 'Another one after every rewind that was noticed: who remembers an earlier one has missed it, who sees an earlier one again has noticed the next.';

create table settled.destinations (
  name          text primary key check (name ~ '^[a-z0-9][a-z0-9._-]{0,62}$'),
  channel       text not null check (channel in ('webhook', 'smtp', 'sms', 'amqp', 'file_batch')),
  effect_scope  text not null,
  revision      bigint not null check (revision > 0),
  generation    text not null,
  rules         jsonb not null,
  definition    jsonb not null,
  published_at  timestamptz not null default clock_timestamp(),
  withdrawn_at  timestamptz,
  parked_at     timestamptz,
  parked_reason text,
  check ((parked_at is null) = (parked_reason is null))
);
comment on table settled.destinations is 'Configured downstreams, as published by the daemon; only a higher revision replaces.';
comment on column settled.destinations.effect_scope is 'Name under which effects are unique; the own name unless destinations that reach the same people share one.';
comment on column settled.destinations.generation is 'Hash of what makes it this downstream: address, account, sender, look-up definition.';
comment on column settled.destinations.rules is 'What settled.enqueue needs: reference_pattern, asked_by_key, approval, canonical declarations.';
comment on column settled.destinations.definition is 'The whole definition, secrets as references only.';
comment on column settled.destinations.withdrawn_at is 'Left the configuration; its intents are unserved.';
comment on column settled.destinations.parked_at is 'Set when it must not be sent to (credentials refused, self-test failed); intents wait.';

create table settled.generations (
  destination  text not null references settled.destinations (name),
  generation   text not null,
  definition   jsonb not null,
  published_at timestamptz not null default clock_timestamp(),
  tested_at    timestamptz,
  test_failed  text,
  primary key (destination, generation)
);
comment on column settled.generations.test_failed is 'Why the last self-test failed; it can then only say Found or nothing.';
comment on table settled.generations is 'Every downstream a destination has ever meant; doubt is asked of the generation that the attempt used.';

create table settled.producers (
  role       name not null,
  tenant     text not null check (tenant ~ '^[A-Za-z0-9._-]{1,63}$'),
  granted_at timestamptz not null default clock_timestamp(),
  granted_by text not null default session_user,
  primary key (role, tenant)
);
comment on table settled.producers is 'Which database roles may enqueue, and for which tenant.';

create table settled.grants (
  tenant      text not null check (tenant ~ '^[A-Za-z0-9._-]{1,63}$'),
  destination text not null references settled.destinations (name),
  granted_at  timestamptz not null default clock_timestamp(),
  granted_by  text not null default session_user,
  primary key (tenant, destination)
);
comment on table settled.grants is 'Which tenant may use which destination.';

create table settled.pauses (
  scope     text not null check (scope in ('all', 'destination', 'tenant')),
  name      text not null default '',
  reason    text not null check (reason <> ''),
  paused_by text not null,
  paused_at timestamptz not null default clock_timestamp(),
  primary key (scope, name),
  check ((scope = 'all') = (name = ''))
);
comment on table settled.pauses is 'Sending is stopped for all, a destination or a tenant while the row is here.';

create table settled.paces (
  destination text primary key references settled.destinations (name),
  tokens      double precision not null check (tokens >= 0),
  counted_at  timestamptz not null,
  learned     double precision check (learned > 0),
  ceiling     double precision check (ceiling > 0),
  slowed_at   timestamptz,
  grown_at    timestamptz,
  not_before  timestamptz
) with (fillfactor = 50);
comment on table settled.paces is 'How fast a destination may be sent to, by all daemons together; a row exists once that was ever limited.';
comment on column settled.paces.tokens is 'Sends that may begin now, as counted at counted_at.';
comment on column settled.paces.learned is 'Sends a second that the destination seems to bear; null: as configured.';
comment on column settled.paces.ceiling is 'Up to here the learned pace grows fast, above it slowly.';
comment on column settled.paces.slowed_at is 'What was claimed before that was sent too fast already and slows nothing down again.';
comment on column settled.paces.grown_at is 'When the learned pace grew last.';
comment on column settled.paces.not_before is 'Nothing is sent to the destination before: it asked for a pause (Retry-After).';

create table settled.tokens (
  id         text primary key,
  kind       text not null check (kind in ('producer', 'responder', 'admin', 'metrics', 'downstream')),
  principal  text not null,
  tenant     text,
  hash       bytea not null,
  created_at timestamptz not null default clock_timestamp(),
  created_by text not null,
  expires_at timestamptz,
  revoked_at timestamptz,
  check (kind <> 'producer' or tenant is not null)
);
comment on table settled.tokens is 'API callers: stl_<kind>_<id>_<secret>; only a hash of the secret is kept.';
comment on column settled.tokens.tenant is 'A producer acts for exactly one tenant; a responder with a tenant sees only it.';

create table settled.workers (
  id           uuid primary key,
  name         text not null,
  version      text not null,
  started_at   timestamptz not null default clock_timestamp(),
  heartbeat_at timestamptz not null default clock_timestamp(),
  beats        bigint not null default 0,
  stopped_at   timestamptz
);
comment on table settled.workers is 'One row per daemon process; a heartbeat that stops makes its attempts unknown early.';
comment on column settled.workers.beats is 'Heartbeats so far; a process that finds a lower number than it had acknowledged knows that history was lost.';
