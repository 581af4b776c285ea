-- Postgres refuses what the code must never do. `domain::state` holds the same moves; a test compares both over all pairs.

create function settled.legal_move(from_state text, to_state text) returns boolean
language sql immutable strict parallel safe
as $$
  select case from_state
    when 'held' then to_state in ('pending', 'cancelled', 'sent', 'failed', 'unknown', 'abandoned')
    when 'pending' then to_state in ('held', 'in_flight', 'cancelled', 'failed', 'sent', 'unknown', 'abandoned')
    when 'in_flight' then to_state in ('sent', 'failed', 'pending', 'unknown', 'cancelled', 'abandoned')
    when 'unknown' then to_state in ('held', 'sent', 'pending', 'failed', 'abandoned', 'cancelled', 'in_flight')
    -- What has ended moves on by evidence, and by a person who sends again or withdraws a statement.
    when 'failed' then to_state in ('pending', 'held', 'sent', 'unknown', 'cancelled', 'abandoned')
    when 'cancelled' then to_state in ('held', 'sent', 'unknown', 'pending', 'failed', 'abandoned')
    when 'abandoned' then to_state in ('held', 'sent', 'unknown', 'failed', 'cancelled', 'pending')
    when 'sent' then to_state in ('held', 'unknown', 'failed', 'pending', 'cancelled', 'abandoned')
    else false
  end
$$;
comment on function settled.legal_move(text, text) is 'Whether an intent may go from one state to another; staying is no move.';

create function settled.guard_move() returns trigger
language plpgsql
as $$
begin
  raise exception using errcode = 'ST450',
    message = format('illegal move of intent %s: %s to %s', old.id, old.state, new.state);
end $$;
comment on function settled.guard_move() is 'Refuses a move that settled.legal_move does not know.';

-- After, not before, where the row moves often: a trigger before it locks each row once more, whether it fires or not.
create trigger legal_moves after update of state on settled.intents
for each row when (old.state is distinct from new.state and not settled.legal_move(old.state, new.state))
execute function settled.guard_move();

create function settled.guard_frozen() returns trigger
language plpgsql
as $$
begin
  raise exception using errcode = 'ST450',
    message = format('%s on %s is refused: %s', lower(tg_op), tg_table_name, tg_argv[0]);
end $$;
comment on function settled.guard_frozen() is 'Refuses a change of what never changes.';

create trigger identity_is_frozen
after update of id, tenant, destination, effect_scope, recipient, reference, occurrence, fingerprint, created_at on settled.intents
for each row when ((old.id, old.tenant, old.destination, old.effect_scope, old.recipient, old.reference, old.occurrence, old.fingerprint, old.created_at)
  is distinct from (new.id, new.tenant, new.destination, new.effect_scope, new.recipient, new.reference, new.occurrence, new.fingerprint, new.created_at))
execute function settled.guard_frozen('effect, tenant and fingerprint of an intent never change');

create trigger key_is_pinned
after update of key, kid, revision on settled.intents
for each row when (old.key is not null and new.revision = old.revision and (old.key, old.kid) is distinct from (new.key, new.kid)
  or new.revision < old.revision)
execute function settled.guard_frozen('a pinned key changes only with a higher revision');

create trigger append_only before update or delete on settled.requests
for each row execute function settled.guard_frozen('requests are append-only');

create trigger append_only before update or delete on settled.journal
for each row execute function settled.guard_frozen('the journal is append-only');

-- After, as above: attempts are closed on the hot path.
create trigger evidence_is_kept after update or delete on settled.attempts
for each row when (old.closed_at is not null) execute function settled.guard_frozen('what a closed attempt learned is evidence');

create function settled.guard_intent() returns trigger
language plpgsql
as $$
begin
  if exists (select from settled.requests r where r.intent_id = old.id) then
    raise exception using errcode = 'ST450', message = format('delete on intents is refused: intent %s has requests', old.id);
  end if;
  return old;
end $$;
comment on function settled.guard_intent() is 'Keeps an intent while a request points to it, as a foreign key would.';

create trigger requests_are_served before delete on settled.intents
for each row execute function settled.guard_intent();

create trigger destinations_are_kept before delete on settled.destinations
for each row execute function settled.guard_frozen('destinations are withdrawn, since intents name them');

create trigger names_are_kept before update of name on settled.destinations
for each row when (old.name <> new.name) execute function settled.guard_frozen('intents name their destination');

create trigger payload_is_frozen before update on settled.payloads
for each row execute function settled.guard_frozen('payloads are kept as given, or purged');

create trigger generations_are_frozen before update of destination, generation, definition on settled.generations
for each row execute function settled.guard_frozen('a generation is what an attempt was sent to');

revoke all on all functions in schema settled from public;
