-- A rewound database: a failover to a standby that lagged, a restore, a clone. Attempts may have been made that no row knows.

create table settled.rewinds (
  number          integer primary key check (number > 0),
  history         uuid not null unique,
  noticed_at      timestamptz not null,
  noticed_by      uuid not null,
  why             text not null check (why <> ''),
  remembered      jsonb not null,
  seen            jsonb not null,
  known_until     timestamptz not null,
  closure_at      timestamptz not null,
  quiet_until     timestamptz not null,
  ask_first_until timestamptz not null,
  needs_person    boolean not null,
  walked_to       uuid not null default '00000000-0000-0000-0000-000000000000',
  walked_at       timestamptz,
  lifted_at       timestamptz,
  lifted_by       text,
  lifted_because  text,
  ended_at        timestamptz,
  check ((lifted_at is null) = (lifted_by is null) and (lifted_at is null) = (lifted_because is null)),
  check (known_until <= noticed_at and noticed_at <= closure_at and closure_at <= quiet_until)
);
comment on table settled.rewinds is 'History that was lost, and the quarantine after it: one row a rewind, whoever noticed it.';
comment on column settled.rewinds.number is '1, 2, …; intents.rewind says up to which of them an intent was asked about.';
comment on column settled.rewinds.history is 'What instance.history became; several daemons that notice the same rewind write one row.';
comment on column settled.rewinds.noticed_at is 'Database clock; every time below is counted from here.';
comment on column settled.rewinds.noticed_by is 'Worker that noticed it.';
comment on column settled.rewinds.why is 'What gave it away, in words.';
comment on column settled.rewinds.remembered is 'Last acknowledged position that the worker remembered: system, timeline, LSN, heartbeat number.';
comment on column settled.rewinds.seen is 'The position that it found instead.';
comment on column settled.rewinds.known_until is 'What was written until then is still there; a lost attempt began later.';
comment on column settled.rewinds.closure_at is 'No byte of a lost attempt can leave after that: the rewind and the longest lease.';
comment on column settled.rewinds.quiet_until is 'Nothing is claimed before: the rewind, the longest lease and lag.';
comment on column settled.rewinds.ask_first_until is 'What is asked for before then is asked about first: the rewind and the callers'' replay horizon, or when a person lifted it.';
comment on column settled.rewinds.needs_person is 'Another system identifier: a restore or a copy. Nothing is sent until a person says that this is the one that may.';
comment on column settled.rewinds.walked_to is 'Intents up to this id have been put in doubt.';
comment on column settled.rewinds.walked_at is 'All of them have.';
comment on column settled.rewinds.lifted_at is 'When a person ended asking first, or said that this copy may send.';
comment on column settled.rewinds.lifted_by is 'Who.';
comment on column settled.rewinds.lifted_because is 'Why.';
comment on column settled.rewinds.ended_at is 'Its times are over and its questions are answered.';
