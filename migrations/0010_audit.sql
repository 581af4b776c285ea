-- Asking for the whole fleet: what may be asked when, the shared part of an answer, and what is looked at without a doubt.

create table settled.asking (
  destination     text primary key references settled.destinations (name),
  calls           double precision not null,
  filled_at       timestamptz not null,
  cost            double precision not null default 1 check (cost >= 1),
  suspended_until timestamptz,
  suspended_why   text,
  swept_until     timestamptz,
  check ((suspended_until is null) = (suspended_why is null))
);
comment on table settled.asking is 'What may be asked of a destination by all daemons together: a bucket of calls, locked by whoever leases questions.';
comment on column settled.asking.destination is 'Whose look-up.';
comment on column settled.asking.calls is 'Calls left at filled_at; below 0 where answers took more pages than were expected.';
comment on column settled.asking.filled_at is 'Database time of calls; the bucket fills from there by per_minute.';
comment on column settled.asking.cost is 'Calls that one question or listing took of late, pages and account check included; what the next one is charged before it is asked.';
comment on column settled.asking.suspended_until is 'The downstream said 429: nobody asks before.';
comment on column settled.asking.suspended_why is 'What it said.';
comment on column settled.asking.swept_until is 'Up to here a whole listing was read for effects with our marks that no row explains.';

create table settled.rounds (
  id          uuid primary key,
  destination text not null,
  generation  text not null,
  at          timestamptz not null,
  intents     integer not null check (intents > 0),
  shared      jsonb not null
);
comment on table settled.rounds is 'One listing that answered for many intents: its controls, its query and who answered, kept once. Append-only.';
comment on column settled.rounds.id is 'Named by look_up and audit rows of the journal (data, member round).';
comment on column settled.rounds.destination is 'Who was asked.';
comment on column settled.rounds.generation is 'Which of its generations.';
comment on column settled.rounds.at is 'Start of the question, database time.';
comment on column settled.rounds.intents is 'How many intents it answered for.';
comment on column settled.rounds.shared is 'rules, question, answer: the members that are equal in every case of the round.';

create trigger append_only before update or delete on settled.rounds
for each row execute function settled.guard_frozen('what an answer rests on is kept as it was');

create function settled.whole_look_up(told jsonb) returns jsonb
language sql stable parallel safe
set search_path = pg_catalog, settled, pg_temp
as $$
  select coalesce((
    select jsonb_set(told, '{record,case}', (told #> '{record,case}') || jsonb_build_object(
             'rules', r.shared -> 'rules',
             'question', (r.shared -> 'question')
               || jsonb_build_object('probes', (told #> '{record,case,question,probes}') || (r.shared #> '{question,probes}')),
             'answer', (r.shared -> 'answer')
               || jsonb_build_object('seen', (told #> '{record,case,answer,seen}') || (r.shared #> '{answer,seen}'))))
      from settled.rounds r where r.id = (told ->> 'round')::uuid), told)
$$;
comment on function settled.whole_look_up(jsonb) is 'Data of a look_up or audit row with the shared part of its round put back, so that the verdict can be computed again.';

create table settled.audits (
  intent_id     uuid not null references settled.intents (id),
  generation    text not null,
  destination   text not null,
  kind          text not null check (kind in ('sample', 'repeat')),
  attempt       integer not null check (attempt > 0),
  sent_from     timestamptz not null,
  sent_until    timestamptz not null,
  enrolled_at   timestamptz not null,
  due_at        timestamptz,
  asked         integer not null default 0,
  earlier       jsonb not null default '[]',
  invisible_for double precision,
  visible_after double precision,
  result        text check (result in ('one', 'several', 'not_visible', 'none', 'unexplained', 'not_asked')),
  closed_at     timestamptz,
  counted_at    timestamptz,
  leased_until  timestamptz,
  token         uuid,
  primary key (intent_id, generation),
  check ((due_at is null) = (closed_at is not null)),
  check ((closed_at is null) = (result is null)),
  check ((leased_until is null) = (token is null)),
  check (kind = 'sample' or visible_after is null)
) with (fillfactor = 70);
create index audits_due on settled.audits (destination, due_at) where due_at is not null;
create index audits_enrolled on settled.audits (destination, generation, enrolled_at);
create index audits_closed on settled.audits (closed_at) where closed_at is not null;
comment on table settled.audits is 'Sends that are asked about although nobody doubts them: a sample of ordinary ones, which also measures the lag, and every intent with a second attempt. Kept for a day after their end.';
comment on column settled.audits.intent_id is 'Which.';
comment on column settled.audits.generation is 'Of the destination that is asked; one row for each that bytes were handed to.';
comment on column settled.audits.destination is 'Its destination.';
comment on column settled.audits.kind is 'sample: an ordinary send. repeat: more than one attempt handed over bytes.';
comment on column settled.audits.attempt is 'The attempt that one effect in this generation is put down to.';
comment on column settled.audits.sent_from is 'Start of the first attempt.';
comment on column settled.audits.sent_until is 'End of the last attempt: reply for a sample, closure for a repeat. The lag counts from here.';
comment on column settled.audits.enrolled_at is 'When it was chosen.';
comment on column settled.audits.due_at is 'When it is asked next; null when it is over.';
comment on column settled.audits.asked is 'Answers so far.';
comment on column settled.audits.earlier is 'Those answers, as the judge counts them.';
comment on column settled.audits.invisible_for is 'Seconds after sent_until at which a whole answer did not show it yet: the lag was longer.';
comment on column settled.audits.visible_after is 'Seconds after sent_until at which it was first seen: the lag was no longer.';
comment on column settled.audits.result is 'one: as expected. none: not there, and nobody said that it was. unexplained: something else was there. not_asked: the horizon passed or the generation cannot be asked.';
comment on column settled.audits.closed_at is 'When it was over.';
comment on column settled.audits.counted_at is 'A missing one that has parked its destination already.';
comment on column settled.audits.leased_until is 'Taken by a daemon until then.';
comment on column settled.audits.token is 'That daemon.';

revoke all on all functions in schema settled from public;
