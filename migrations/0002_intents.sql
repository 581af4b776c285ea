-- What is asked for, and what is tried. No index of intents names a column that a move changes, so moves stay HOT.
create table settled.intents (
  id             uuid primary key,
  tenant         text not null,
  destination    text not null references settled.destinations (name),
  effect_scope   text not null,
  recipient      text not null default '',
  reference      text not null,
  occurrence     integer not null default 1 check (occurrence >= 1),
  holds_effect   boolean not null default true,
  state          text not null check (state in ('held', 'pending', 'in_flight', 'sent', 'failed', 'unknown', 'cancelled', 'abandoned')),
  approved       boolean not null default true,
  revision       integer not null default 0 check (revision >= 0),
  fingerprint    bytea not null,
  canon_version  integer not null,
  declarations   bigint not null,
  attempt        integer not null default 0,
  evidence       integer not null default 0,
  version        bigint not null default 0,
  key            text,
  kid            text,
  created_at     timestamptz not null default clock_timestamp(),
  due_at         timestamptz not null,
  deadline       timestamptz,
  settled_at     timestamptz,
  sent_at        timestamptz,
  provider_id    text,
  detail         text,
  marks          text[] not null default '{}',
  rewind         integer not null default 0,
  check ((key is null) = (kid is null)),
  check (state <> 'in_flight' or attempt > 0),
  check (state <> 'in_flight' or key is not null),
  check ((state = 'sent') = (sent_at is not null)),
  check ((state in ('sent', 'failed', 'cancelled', 'abandoned')) = (settled_at is not null)),
  check (holds_effect or state in ('failed', 'cancelled', 'sent')),
  check (state <> 'held' or not approved)
) with (fillfactor = 70);
create unique index intents_effect on settled.intents (tenant, effect_scope, recipient, reference, occurrence) where holds_effect;
create index intents_reference on settled.intents (reference, tenant);
comment on table settled.intents is 'One effect that somebody wants once. State is a fold over all evidence; see domain::state.';
comment on column settled.intents.recipient is 'Normal form of the channel; empty for webhook and file batch.';
comment on column settled.intents.reference is 'Folded to ASCII lower case here; the payload keeps the spelling that was given (requests.reference).';
comment on column settled.intents.holds_effect is 'While true nobody else may ask for the effect. False only by hard proof or a person who says absent.';
comment on column settled.intents.approved is 'False while a policy waits for a person.';
comment on column settled.intents.revision is 'Counts corrections after a hard-negative end; part of the key.';
comment on column settled.intents.declarations is 'Revision of the destination whose declarations made the fingerprint.';
comment on column settled.intents.attempt is 'Number of the newest attempt; 0 before the first.';
comment on column settled.intents.evidence is 'How many pieces of evidence were appended; guards every move.';
comment on column settled.intents.version is 'Optimistic version for people; look-up answers do not change it.';
comment on column settled.intents.key is 'HMAC of the identity, pinned before the first byte leaves.';
comment on column settled.intents.rewind is 'Newest rewind (settled.rewinds) whose lost attempts are among its evidence; 0 for none. While a later one concerns it, it is not claimed.';
comment on column settled.intents.marks is 'duplicate_found, late_result, bounced, sent_not_visible, history_lost, deadline_passed.';

create table settled.requests (
  id            uuid primary key,
  intent_id     uuid not null references settled.intents (id),
  tenant        text not null,
  run_id        text not null,
  step          bigint not null check (step >= 0),
  slot          text not null default '',
  revision      integer not null default 0,
  reference     text not null,
  fingerprint   bytea not null,
  canon_version integer not null,
  verdict       text not null check (verdict in ('accepted', 'already_requested')),
  surface       text not null,
  principal     text not null,
  instructed_by jsonb,
  traceparent   text,
  at            timestamptz not null default clock_timestamp(),
  unique (tenant, run_id, step, slot, revision)
);
create index requests_intent on settled.requests (intent_id);
comment on table settled.requests is 'One call that asked for an effect; append-only; many may point to one intent.';
comment on column settled.requests.revision is 'Of the identity: a corrected call after a hard-negative end is the same identity, one higher.';
comment on column settled.requests.reference is 'As the caller spelled it.';

create table settled.payloads (
  intent_id uuid primary key references settled.intents (id),
  salt      bytea not null,
  body      text not null
);
comment on table settled.payloads is 'What was given, byte for byte, and the salt of the fingerprint; purged together.';

create table settled.attempts (
  intent_id    uuid not null references settled.intents (id),
  number       integer not null check (number > 0),
  kind         text not null check (kind in ('send', 'replay')),
  token        uuid not null,
  worker       uuid not null,
  generation   text not null,
  claimed_at   timestamptz not null,
  lease_until  timestamptz not null,
  replay_until timestamptz,
  digest       bytea,
  closed_at    timestamptz,
  outcome      text check (outcome in ('sent', 'refused', 'not_sent', 'ambiguous')),
  closure_at   timestamptz,
  report       jsonb,
  primary key (intent_id, number),
  check ((closed_at is null) = (outcome is null))
) with (fillfactor = 80);
create index attempts_open on settled.attempts (lease_until) where closed_at is null;
comment on table settled.attempts is 'One send or replay of an intent. (number, token) fences every later write.';
comment on column settled.attempts.closure_at is 'From when no byte of this attempt can still leave; lease end, never the time of reaping.';
comment on column settled.attempts.report is 'Stage, bytes, reply, cause: the evidence the channel gave.';
comment on column settled.attempts.digest is 'SHA-256 of the rendering; a replay with another digest is no replay.';

create table settled.queue (
  intent_id    uuid primary key references settled.intents (id),
  destination  text not null,
  tenant       text not null,
  kind         text not null check (kind in ('send', 'ask', 'wait')),
  due_at       timestamptz not null,
  deadline     timestamptz,
  leased_until timestamptz,
  token        uuid,
  check ((leased_until is null) = (token is null))
) with (fillfactor = 50);
create index queue_due on settled.queue (destination, kind, due_at);
create index queue_deadline on settled.queue (deadline) where deadline is not null;
comment on table settled.queue is 'What is due. A row exists while there is something to do: send, ask downstream, or wait for a person.';
comment on column settled.queue.leased_until is 'Claimed until then, for a send or for a question; unindexed, so a claim is a HOT update.';

create table settled.journal (
  id        bigint generated always as identity primary key,
  intent_id uuid,
  at        timestamptz not null default clock_timestamp(),
  kind      text not null,
  attempt   integer,
  actor     text not null,
  data      jsonb not null default '{}'
);
create index journal_intent on settled.journal (intent_id, id);
comment on table settled.journal is 'Append-only: moves, look-ups with their controls, acts of people, evidence from elsewhere.';
comment on column settled.journal.kind is 'move | evidence | look_up | act | request (a repeat) | conflict | history (attempts of it may have been lost) | administration.';
comment on column settled.journal.actor is 'Who: a person (responder:…), a loop (dispatcher@worker), a producer.';

create table settled.escalations (
  id            uuid primary key,
  subject       text not null check (subject in ('intent', 'request', 'destination', 'sighting', 'instance')),
  intent_id     uuid references settled.intents (id),
  destination   text not null default '',
  tenant        text not null default '',
  reason        text not null,
  cause         text not null,
  summary       text not null,
  detail        jsonb not null default '{}',
  opened_at     timestamptz not null default clock_timestamp(),
  claimed_by    text,
  claimed_until timestamptz,
  assigned_to   text,
  snoozed_until timestamptz,
  closed_at     timestamptz,
  closed_by     text,
  resolution    text,
  version       bigint not null default 0,
  check ((closed_at is null) = (resolution is null))
);
create unique index escalations_open on settled.escalations (subject, coalesce(intent_id, '00000000-0000-0000-0000-000000000000'), destination, reason) where closed_at is null;
create index escalations_intent on settled.escalations (intent_id);
comment on table settled.escalations is 'A person must decide; why, and what they decided.';
comment on column settled.escalations.cause is 'Groups an outage of many intents into one line.';

create table settled.decisions (
  id           uuid primary key,
  intent_id    uuid not null references settled.intents (id),
  act          text not null check (act in ('send_again')),
  actor        text not null,
  reason       text not null,
  detail       jsonb not null default '{}',
  made_at      timestamptz not null default clock_timestamp(),
  effective_at timestamptz not null,
  applied_at   timestamptz,
  stopped_at   timestamptz,
  stopped_by   text,
  result       text
);
create index decisions_due on settled.decisions (effective_at) where applied_at is null and stopped_at is null;
comment on table settled.decisions is 'Acts that wait a moment before they bind, so that they can be stopped.';

create table settled.sightings (
  id          uuid primary key,
  source      text not null,
  key         text not null,
  intent_id   uuid,
  attempt     integer,
  provider_id text,
  negative    boolean not null default false,
  seen_at     timestamptz not null default clock_timestamp(),
  detail      jsonb not null default '{}'
);
create index sightings_key on settled.sightings (key);
comment on table settled.sightings is 'Evidence that the downstream sent by itself: receipts, notifications, log lines.';

create table settled.witnesses (
  destination text not null,
  generation  text not null,
  intent_id   uuid not null references settled.intents (id),
  started_at  timestamptz not null,
  ended_at    timestamptz not null,
  key         text not null,
  reference   text not null,
  occurrence  integer not null,
  recipient   text not null,
  account     text,
  primary key (destination, generation, intent_id)
);
create index witnesses_by_time on settled.witnesses (destination, generation, started_at);
comment on table settled.witnesses is 'A sample of sends known as sent by reply: the controls without which absence is not believed.';
