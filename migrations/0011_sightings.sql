-- What downstreams tell by themselves: delivery receipts and the like. Only a full key of ours counts.
create table settled.sighting_keys (
  destination text not null references settled.destinations (name),
  key         text not null,
  intent_id   uuid not null references settled.intents (id),
  primary key (destination, key)
);
comment on table settled.sighting_keys is 'Which intent a key belongs to, for destinations that report by themselves; written before the first byte leaves.';
comment on column settled.sighting_keys.destination is 'A report of another destination says nothing about it.';
comment on column settled.sighting_keys.key is 'As it stands on the wire.';
comment on column settled.sighting_keys.intent_id is 'Whose key it is.';

create table settled.sightings (
  id          bigint generated always as identity primary key,
  destination text not null references settled.destinations (name),
  key         text not null check (key <> ''),
  intent_id   uuid references settled.intents (id),
  status      text not null check (status in ('accepted', 'delivered', 'failed', 'other')),
  word        text not null,
  code        text,
  provider_id text not null default '',
  at          timestamptz not null,
  received_at timestamptz not null default clock_timestamp(),
  received_by text not null,
  unique (destination, key, provider_id, status, at)
);
create index sightings_intent on settled.sightings (intent_id) where intent_id is not null;
comment on table settled.sightings is 'Every report of a downstream that names a key of ours, once; append-only. What follows from it stands in the journal.';
comment on column settled.sightings.intent_id is 'Null: no row explains it (orphan_sighting).';
comment on column settled.sightings.status is 'What the word means by the mapping of the destination; other: nothing that was declared.';
comment on column settled.sightings.word is 'The status in the words of the downstream.';
comment on column settled.sightings.code is 'Its error code, where it gave one.';
comment on column settled.sightings.provider_id is 'Its own name for the effect; empty for none.';
comment on column settled.sightings.at is 'By the clock of the downstream, or the arrival where it tells none; reports are ordered by it.';
comment on column settled.sightings.received_by is 'The token that brought it.';

create trigger append_only before update or delete on settled.sightings
for each row execute function settled.guard_frozen('sightings are append-only');
