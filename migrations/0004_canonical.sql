-- The canonical form: what two spellings of one meaning have in common. Only hashes and comparisons use it; stored and sent
-- is what was given. It works on the tokens of `json` text, since jsonb has dropped duplicates and expanded numbers.

create function settled.canon_version() returns integer
language sql stable parallel safe
as $$ select 1000 + current_setting('server_version_num')::integer / 10000 $$;
comment on function settled.canon_version() is 'Version of the rules below (thousands) and of the server, whose Unicode tables make NFC. Another one: both sides are computed anew.';

create function settled.invalid(field text, rule text, words text) returns void
language plpgsql volatile
as $$
begin
  raise exception using
    errcode = 'ST400',
    message = format('%s: %s', field, words),
    detail = jsonb_build_object('field', field, 'rule', rule)::text;
end $$;
comment on function settled.invalid(text, text, text) is 'Refuses a call: JSON pointer into the call, one word for the rule, and words for people. Never a value.';

create function settled.pointer_token(name text) returns text
language sql immutable strict parallel safe
as $$ select replace(replace(name, '~', '~0'), '/', '~1') $$;
comment on function settled.pointer_token(text) is 'A member name as one token of a JSON pointer (RFC 6901).';

create function settled.pointer_path(pointer text) returns text[]
language sql immutable strict parallel safe
as $$
  select coalesce(array_agg(replace(replace(p.token, '~1', '/'), '~0', '~') order by p.n), '{}')
  from string_to_table(substr(pointer, 2), '/') with ordinality p (token, n)
  where pointer <> ''
$$;
comment on function settled.pointer_path(text) is 'A JSON pointer (RFC 6901) as the path that #> takes.';

create function settled.check_json(body text) returns void
language plpgsql volatile
as $$
declare
  bare text;
begin
  if octet_length(body) > 262144 then
    perform settled.invalid('/payload', 'size', 'must not be longer than 256 KiB');
  end if;
  if strpos(body, '\u0000') > 0 and body ~ '(^|[^\\])(\\\\)*\\u0000' then
    perform settled.invalid(settled.locate(body, '\\u0000'), 'nul', 'must not contain U+0000');
  end if;
  bare := regexp_replace(body, '"(?:[^"\\]|\\.)*"', '', 'g');
  -- Every value but the first one follows a comma or opens a container; empty containers count as one more.
  if 1 + length(bare) - length(translate(bare, ',[{', '')) > 4096 then
    perform settled.invalid('/payload', 'values', 'must not hold more than 4096 values');
  end if;
  bare := regexp_replace(bare, '[^][{}]+', '', 'g');
  for level in 1..32 loop
    exit when bare = '';
    bare := regexp_replace(bare, '\[\]|\{\}', '', 'g'); -- the innermost level
  end loop;
  if bare <> '' then
    perform settled.invalid('/payload', 'depth', 'must not be nested deeper than 32');
  end if;
end $$;
comment on function settled.check_json(text) is 'Limits of a payload by its text alone, before anything walks it: 256 KiB, 4,096 values, depth 32, no U+0000.';

create function settled.locate_mark(v json, path text) returns text
language plpgsql stable
as $$
declare
  inner_path text;
begin
  if json_typeof(v) = 'object' then
    select settled.locate_mark(e.value, path || '/' || settled.pointer_token(e.key)) into inner_path
    from json_each(v) e where e.value::text ~ '\\uE000' limit 1;
  elsif json_typeof(v) = 'array' then
    select settled.locate_mark(e.value, path || '/' || e.n - 1) into inner_path
    from json_array_elements(v) with ordinality e (value, n) where e.value::text ~ '\\uE000' limit 1;
  end if;
  return coalesce(inner_path, path);
end $$;
comment on function settled.locate_mark(json, text) is 'JSON pointer of the first value that contains the mark of settled.locate.';

create function settled.locate(body text, bad text, path text default '/payload') returns text
language plpgsql stable
as $$
begin
  -- No function walks a JSON text that holds such an escape, so it is marked first.
  return settled.locate_mark(regexp_replace(body, bad, '\\uE000', 'g')::json, path);
exception when others then
  return path;
end $$;
comment on function settled.locate(text, text, text) is 'JSON pointer of the value that holds an escape nobody can read; for the words of a refusal only.';

create function settled.canonical_number(token text, field text) returns text
language plpgsql stable parallel safe
as $$
declare
  m text[] := regexp_match(token, '^(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]{1,6}))?$');
  digits text;
  exponent integer;
begin
  if m is null then
    perform settled.invalid(field, 'number', 'must be a number with an exponent of at most six digits');
  end if;
  digits := ltrim(m[2] || coalesce(m[3], ''), '0');
  if digits = '' then
    return '0';
  end if;
  exponent := coalesce(m[4]::integer, 0) - coalesce(length(m[3]), 0) + length(digits) - length(rtrim(digits, '0'));
  return m[1] || rtrim(digits, '0') || 'e' || exponent;
end $$;
comment on function settled.canonical_number(text, text) is 'Digits without outer zeros and an exponent: 1 = 1.0 = 1e0, and 1e131071 stays short.';

create function settled.canonical_time(given text, field text) returns text
language plpgsql stable parallel safe
as $$
declare
  m text[] := regexp_match(given,
    '^(\d{4})-(\d\d)-(\d\d)[Tt ]([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?:\.(\d+))?(?:([Zz])|([+-])([01]\d|2[0-3]):([0-5]\d))$');
  utc timestamp;
begin
  if m is null then
    perform settled.invalid(field, 'time', 'must be an RFC 3339 timestamp with an offset, no leap second');
  end if;
  begin
    utc := make_timestamp(m[1]::integer, m[2]::integer, m[3]::integer, m[4]::integer, m[5]::integer, m[6]::integer);
  exception when datetime_field_overflow then
    perform settled.invalid(field, 'time', 'is not a date of the calendar');
  end;
  if m[9] is not null then
    utc := utc - (m[9] || '1')::integer * make_interval(hours => m[10]::integer, mins => m[11]::integer);
  end if;
  return to_char(utc, 'YYYY-MM-DD"T"HH24:MI:SS') || coalesce('.' || nullif(rtrim(m[7], '0'), ''), '') || 'Z';
end $$;
comment on function settled.canonical_time(text, text) is 'A timestamp in UTC, fraction without trailing zeros; without an offset it is refused.';

create function settled.currency_exponent(code text) returns integer
language sql immutable strict parallel safe
as $$
  select case
    when code in ('BIF','CLP','DJF','GNF','ISK','JPY','KMF','KRW','PYG','RWF','UGX','UYI','VND','VUV','XAF','XOF','XPF') then 0
    when code in ('BHD','IQD','JOD','KWD','LYD','OMR','TND') then 3
    when code in ('CLF','UYW') then 4
    when code in ('AED','AFN','ALL','AMD','ANG','AOA','ARS','AUD','AWG','AZN','BAM','BBD','BDT','BGN','BMD','BND','BOB','BOV','BRL',
      'BSD','BTN','BWP','BYN','BZD','CAD','CDF','CHE','CHF','CHW','CNY','COP','COU','CRC','CUP','CVE','CZK','DKK','DOP','DZD','EGP',
      'ERN','ETB','EUR','FJD','FKP','GBP','GEL','GHS','GIP','GMD','GTQ','GYD','HKD','HNL','HTG','HUF','IDR','ILS','INR','IRR','JMD',
      'KES','KGS','KHR','KPW','KYD','KZT','LAK','LBP','LKR','LRD','LSL','MAD','MDL','MGA','MKD','MMK','MNT','MOP','MRU','MUR','MVR',
      'MWK','MXN','MXV','MYR','MZN','NAD','NGN','NIO','NOK','NPR','NZD','PAB','PEN','PGK','PHP','PKR','PLN','QAR','RON','RSD','RUB',
      'SAR','SBD','SCR','SDG','SEK','SGD','SHP','SLE','SOS','SRD','SSP','STN','SVC','SYP','SZL','THB','TJS','TMT','TOP','TRY','TTD',
      'TWD','TZS','UAH','USD','USN','UYU','UZS','VED','VES','WST','XCD','XCG','YER','ZAR','ZMW','ZWG') then 2
  end
$$;
comment on function settled.currency_exponent(text) is 'Digits after the decimal point of a currency (ISO 4217); null for an unknown code.';

create function settled.canonical_money(v json, currency text, field text) returns text
language plpgsql stable parallel safe
as $$
declare
  given text := btrim(v #>> '{}', E'\t\n\r ');
  places integer := settled.currency_exponent(currency);
  m text[];
  shift integer;
begin
  if places is null then
    perform settled.invalid(field, 'currency', 'needs a known ISO 4217 currency beside it');
  end if;
  if json_typeof(v) = 'string' then
    m := regexp_match(given, '^-?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.([0-9]+))?$');
    if m is null then
      perform settled.invalid(field, 'money', 'must be an amount such as "40,000.00"');
    elsif length(m[1]) > places then
      -- Also where they are zeros: "40.000" is forty thousand to half of the world.
      perform settled.invalid(field, 'money', format('must not have more than %s digits after the point', places));
    end if;
    given := replace(given, ',', '');
  elsif json_typeof(v) <> 'number' then
    perform settled.invalid(field, 'money', 'must be a number or a string');
  end if;
  m := regexp_match(settled.canonical_number(given, field), '^(-?[0-9]+)e(-?[0-9]+)$');
  if m is null then
    return json_build_array(currency, 0)::text;
  end if;
  shift := m[2]::integer + places;
  if shift < 0 then
    perform settled.invalid(field, 'money', format('must not have more than %s digits after the point', places));
  elsif shift > 30 then
    perform settled.invalid(field, 'money', 'is too large');
  end if;
  return '["' || currency || '",' || m[1] || repeat('0', shift) || ']';
end $$;
comment on function settled.canonical_money(json, text, text) is 'An amount as currency and whole minor units; digits beyond the currency''s are refused, never rounded.';

create function settled.nfc(given text, field text) returns text
language plpgsql immutable parallel safe
as $$
begin
  if octet_length(given) = length(given) then
    return given; -- ASCII
  end if;
  -- The server sorts combining marks in quadratic time, and nothing interrupts it. U+0345 sorts after every other mark: put
  -- before 64 characters, it comes out at their end only where none of them begins a new letter.
  if given ~ '[^\u0001-\u007f]{64}' and exists (
      select from regexp_matches(given, '[^\u0001-\u007f]{64}', 'g') part,
        rtrim(normalize(U&'\0345' || part[1], nfd), U&'\0345') sorted
      where strpos(sorted, U&'\0345') = 0) then
    perform settled.invalid(field, 'marks', 'must not hold 64 or more combining marks in a row');
  end if;
  return normalize(given, nfc);
end $$;
comment on function settled.nfc(text, text) is 'Normal form C (Unicode Standard Annex 15). Raises ST400 for the field where marks are piled up.';

create function settled.canonical_string(given text, field text) returns text
language sql stable parallel safe -- to_json() is no more than stable, and declared as less it would not be inlined
as $$ select to_json(settled.nfc(btrim(given, E'\t\n\r '), field))::text $$;
comment on function settled.canonical_string(text, text) is 'NFC, without U+0009, 000A, 000D, 0020 at both ends, as a JSON string.';

create function settled.members(v json, defaults jsonb, field text) returns table (name text, value json)
language plpgsql stable parallel safe
as $$
begin
  return query select settled.nfc(e.key, field), e.value from json_each(v) e;
  if defaults is not null then
    return query select d.key, d.value::text::json from jsonb_each(defaults) d
      where not exists (select from json_object_keys(v) k where settled.nfc(k, field) = d.key);
  end if;
end $$;
comment on function settled.members(json, jsonb, text) is 'Members of an object, names in NFC, and those that are meant where they are missing.';

create function settled.canonical_value(v json, path text, rules jsonb) returns text
language plpgsql stable parallel safe
as $$
declare
  body text;
  names bigint;
  different bigint;
  kind text := json_typeof(v);
begin
  if rules is not null and kind <> 'null' then
    if rules -> 'money' ? path then
      return settled.canonical_money(v, rules -> 'money' ->> path, '/payload' || path);
    elsif rules -> 'times' ? path then
      if kind <> 'string' then
        perform settled.invalid('/payload' || path, 'time', 'must be a string');
      end if;
      return to_json(settled.canonical_time(btrim(v #>> '{}', E'\t\n\r '), '/payload' || path))::text;
    elsif rules -> 'sets' ? path and kind <> 'array' then
      perform settled.invalid('/payload' || path, 'set', 'must be an array');
    end if;
  end if;
  case kind
  when 'string' then
    return settled.canonical_string(v #>> '{}', '/payload' || path);
  when 'number' then
    return settled.canonical_number(v #>> '{}', '/payload' || path);
  when 'object' then
    if rules is null then
      select string_agg(to_json(m.name)::text || ':' || settled.canonical_value(m.value, path || '/' || settled.pointer_token(m.name), null), ',' order by m.name collate "C"),
        count(*), count(distinct m.name collate "C")
      into body, names, different
      from (select settled.nfc(e.key, '/payload' || path) as name, e.value from json_each(v) e) m;
    else
      select string_agg(to_json(m.name)::text || ':' || settled.canonical_value(m.value, m.at, rules), ',' order by m.name collate "C")
          filter (where (rules -> 'volatile' ? m.at) is not true),
        count(*), count(distinct m.name collate "C")
      into body, names, different
      from (select n.*, path || '/' || settled.pointer_token(n.name) as at from settled.members(v, rules -> 'defaults' -> path, '/payload' || path) n) m;
    end if;
    if names <> different then
      perform settled.invalid('/payload' || path, 'duplicate_name', 'must not have two members of one name');
    end if;
    return '{' || coalesce(body, '') || '}';
  when 'array' then
    if rules -> 'sets' ? path then
      select string_agg(s.element, ',' order by s.element collate "C") into body
      from (
        select distinct settled.canonical_value(e.value, path || '/' || e.n - 1, rules) collate "C" as element
        from json_array_elements(v) with ordinality e (value, n)
      ) s;
    else
      select string_agg(settled.canonical_value(e.value, path || '/' || e.n - 1, rules), ',' order by e.n)
          filter (where (rules -> 'volatile' ? (path || '/' || e.n - 1)) is not true)
      into body
      from json_array_elements(v) with ordinality e (value, n);
    end if;
    return '[' || coalesce(body, '') || ']';
  else
    return coalesce(v #>> '{}', 'null');
  end case;
end $$;
comment on function settled.canonical_value(json, text, jsonb) is 'Canonical form of one value at a pointer, under prepared declarations (null: none). Itself JSON.';

create function settled.declarations(channel text, declared jsonb, payload json) returns jsonb
language plpgsql stable parallel safe
as $$
declare
  -- Who gets it is compared as the recipient, in its normal form.
  own jsonb := case when channel in ('smtp', 'sms') then '["/to"]' else '[]' end;
  money jsonb;
  defaults jsonb;
begin
  if coalesce(declared, '{}') in ('{}', '{"money":[],"times":[],"sets":[],"volatile":[],"defaults":{}}') then
    return case when own <> '[]' then jsonb_build_object('volatile', own) end;
  end if;
  select jsonb_object_agg(normalize(m ->> 'at', nfc), case
      when left(m ->> 'currency', 1) <> '/' then m ->> 'currency'
      else coalesce(btrim(payload #>> settled.pointer_path(m ->> 'currency'), E'\t\n\r '), declared -> 'defaults' ->> (m ->> 'currency')) end)
    into money from jsonb_array_elements(declared -> 'money') m;
  select jsonb_object_agg(p.parent, p.members) into defaults
  from (
    select normalize(regexp_replace(d.key, '/[^/]*$', ''), nfc) as parent,
      jsonb_object_agg(normalize((settled.pointer_path(substring(d.key from '/[^/]*$')))[1], nfc), d.value) as members
    from jsonb_each(declared -> 'defaults') d group by 1
  ) p;
  return jsonb_build_object('money', coalesce(money, '{}'), 'defaults', coalesce(defaults, '{}'),
    'times', coalesce(normalize((declared -> 'times')::text, nfc)::jsonb, '[]'),
    'sets', coalesce(normalize((declared -> 'sets')::text, nfc)::jsonb, '[]'),
    'volatile', coalesce(normalize((declared -> 'volatile')::text, nfc)::jsonb, '[]') || own);
end $$;
comment on function settled.declarations(text, jsonb, json) is 'The declarations of a destination (rules -> canonical), looked up by pointer; currencies resolved in this payload. Null: nothing declared.';

create function settled.canonical(channel text, declared jsonb, payload json) returns text
language plpgsql stable parallel safe
as $$
begin
  return settled.canonical_value(payload, '', settled.declarations(channel, declared, payload));
end $$;
comment on function settled.canonical(text, jsonb, json) is 'Canonical form of a payload for a destination. Raises ST400 where a declaration or a limit is broken.';

create function settled.differences(a json, b json, path text, sets jsonb) returns setof text
language plpgsql stable parallel safe
as $$
begin
  if a::text = b::text then
    return;
  elsif json_typeof(a) = 'object' and json_typeof(b) = 'object' then
    return query
      select d from (select * from json_each(a)) x (key, value)
        full join (select * from json_each(b)) y (key, value) on x.key = y.key collate "C",
        lateral settled.differences(x.value, y.value, path || '/' || settled.pointer_token(coalesce(x.key, y.key)), sets) d
      order by coalesce(x.key, y.key) collate "C";
  elsif json_typeof(a) = 'array' and json_typeof(b) = 'array' and (sets ? path) is not true then
    return query
      select d from json_array_elements(a) with ordinality x (value, n)
        full join json_array_elements(b) with ordinality y (value, n) on x.n = y.n,
        lateral settled.differences(x.value, y.value, path || '/' || coalesce(x.n, y.n) - 1, sets) d
      order by coalesce(x.n, y.n);
  else
    return next path;
  end if;
end $$;
comment on function settled.differences(json, json, text, jsonb) is 'JSON pointers (RFC 6901) at which two canonical forms differ; a declared set as a whole. For conflicts: names, never values.';

create function settled.framed(field text) returns text
language sql immutable strict parallel safe
as $$ select octet_length(field)::text || ':' || field $$;
comment on function settled.framed(text) is 'A field with its length in bytes before it, so that no two lists of fields look alike.';

create function settled.fingerprint(salt bytea, destination text, recipient text, reference text, occurrence integer, canonical text) returns bytea
language plpgsql immutable strict parallel safe
as $$
begin
  return sha256(salt || convert_to('settled/fingerprint/v1:' || settled.framed(destination) || settled.framed(recipient)
    || settled.framed(reference) || settled.framed(occurrence::text) || settled.framed(canonical), 'UTF8'));
end $$;
comment on function settled.fingerprint(bytea, text, text, text, integer, text) is 'Salted SHA-256 over the fields of a request, each framed by its length. Compared inside one intent only.';

revoke all on all functions in schema settled from public;
