-- What is asked for, and what is tried. No index of intents names a column that a move changes, so moves stay HOT.
create function settled.is_consistent(state text, occurrence integer, revision integer, holds_effect boolean, approved boolean,
  attempt integer, key text, kid text, settled_at timestamptz, sent_at timestamptz) returns boolean
language plpgsql immutable parallel safe
as $$
begin
  return occurrence >= 1 and revision >= 0
    and (key is null) = (kid is null)
    and (sent_at is not null) = (state = 'sent')
    and case state
      when 'held' then not approved and settled_at is null and holds_effect
      when 'pending' then settled_at is null and holds_effect
      when 'in_flight' then settled_at is null and holds_effect and attempt > 0 and key is not null
      when 'unknown' then settled_at is null and holds_effect
      when 'abandoned' then settled_at is not null and holds_effect
      when 'sent' then settled_at is not null
      when 'failed' then settled_at is not null
      when 'cancelled' then settled_at is not null
      else false
    end;
end $$;
comment on function settled.is_consistent(text, integer, integer, boolean, boolean, integer, text, text, timestamptz, timestamptz) is
  'What the columns of an intent must say of each other. One function and not nine checks: every statement that writes a row reads the checks of its table anew, a sixth of an enqueue.';

create table settled.intents (
  -- What never changes comes first: an update writes only what follows to the log.
  id             uuid primary key,
  tenant         text not null,
  destination    text not null,
  effect_scope   text not null,
  recipient      text not null default '',
  reference      text not null,
  occurrence     integer not null default 1,
  canon_version  integer not null,
  fingerprint    bytea not null,
  declarations   bigint not null,
  created_at     timestamptz not null default clock_timestamp(),
  due_at         timestamptz not null,
  deadline       timestamptz,
  revision       integer not null default 0,
  holds_effect   boolean not null default true,
  approved       boolean not null default true,
  marks          text[] not null default '{}',
  rewind         integer not null default 0,
  kid            text,
  key            text,
  attempt        integer not null default 0,
  evidence       integer not null default 0,
  version        bigint not null default 0,
  state          text not null,
  settled_at     timestamptz,
  sent_at        timestamptz,
  provider_id    text,
  detail         text,
  constraint consistent check (settled.is_consistent(state, occurrence, revision, holds_effect, approved, attempt, key, kid, settled_at, sent_at))
) with (fillfactor = 40);
create unique index intents_effect on settled.intents (tenant, effect_scope, recipient, reference, occurrence) where holds_effect;
create index intents_reference on settled.intents (reference, tenant);
comment on table settled.intents is 'One effect that somebody wants once. State is a fold over all evidence; see domain::state.';
comment on column settled.intents.destination is 'Of settled.destinations, whose rows are never deleted. No foreign key: each would lock that one row in every enqueue.';
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
  intent_id     uuid not null,
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
comment on column settled.requests.intent_id is 'Written together with the intent, or while its row is locked; the guards keep an intent that has requests.';
comment on column settled.requests.revision is 'Of the identity: a corrected call after a hard-negative end is the same identity, one higher.';
comment on column settled.requests.reference is 'As the caller spelled it.';

create table settled.payloads (
  intent_id uuid primary key,
  salt      bytea not null,
  body      text not null
);
comment on table settled.payloads is 'What was given, byte for byte, and the salt of the fingerprint; purged together.';

create table settled.attempts (
  intent_id    uuid not null, -- no foreign key: see below
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
  closure_at   timestamptz,
  outcome      text check (outcome in ('sent', 'refused', 'not_sent', 'ambiguous')),
  report       json,
  primary key (intent_id, number),
  check ((closed_at is null) = (outcome is null))
) with (fillfactor = 28);
create index attempts_open on settled.attempts (lease_until) where closed_at is null;
comment on table settled.attempts is 'One send or replay of an intent. (number, token) fences every later write. The fill factor leaves room to close each row on its own page.';
comment on column settled.attempts.intent_id is 'Its intent. Not a foreign key: every row is made from an update of the intent in the same statement, and the check would lock each claimed intent once more.';
comment on column settled.attempts.closure_at is 'From when no byte of this attempt can still leave; lease end, never the time of reaping.';
comment on column settled.attempts.report is 'Stage, bytes, reply, cause: the evidence the channel gave. Kept as it was written, which is half the size of jsonb here.';
comment on column settled.attempts.digest is 'SHA-256 of the rendering; a replay with another digest is no replay.';

create table settled.queue (
  intent_id    uuid primary key,
  destination  text not null,
  tenant       text not null,
  kind         text not null check (kind in ('send', 'ask', 'wait')),
  due_at       timestamptz not null,
  deadline     timestamptz,
  urgent       boolean not null default false,
  leased_until timestamptz,
  token        uuid,
  check ((leased_until is null) = (token is null)),
  check (not urgent or kind = 'ask')
) with (fillfactor = 40);
create index queue_due on settled.queue (destination, kind, due_at);
create index queue_urgent on settled.queue (destination, due_at) where urgent;
create index queue_deadline on settled.queue (deadline) where deadline is not null;
comment on table settled.queue is 'What is due. A row exists while there is something to do: send, ask downstream, or wait for a person.';
comment on column settled.queue.urgent is 'A person waits for this question: it goes before the others.';
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
comment on column settled.journal.kind is 'move | evidence | look_up | audit (an answer that changes nothing) | act | request (a repeat) | conflict | history (attempts of it may have been lost) | administration.';
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
