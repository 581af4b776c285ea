-- What is checked without a library: options, reference, recipient, members of the payload. Every refusal is ST400 with the
-- JSON pointer of the field (into the call seen as one object: /reference, /slot, /payload/to) and one word for the rule.

create function settled.option_text(options jsonb, name text, longest integer, pattern text, words text) returns text
language plpgsql stable
as $$
begin
  if jsonb_typeof(options -> name) is null or jsonb_typeof(options -> name) = 'null' then
    return null;
  elsif jsonb_typeof(options -> name) <> 'string' then
    perform settled.invalid('/' || name, 'type', 'must be a string');
  elsif length(options ->> name) > longest then
    perform settled.invalid('/' || name, 'length', format('must not be longer than %s characters', longest));
  elsif (options ->> name) !~ pattern then
    perform settled.invalid('/' || name, 'charset', words);
  end if;
  return options ->> name;
end $$;
comment on function settled.option_text(jsonb, text, integer, text, text) is 'An option that is a string of a given form, or null.';

create function settled.option_time(options jsonb, name text) returns timestamptz
language plpgsql stable
as $$
declare
  given text := settled.option_text(options, name, 64, '.', 'must be an RFC 3339 timestamp with an offset');
begin
  if given is not null then
    return settled.canonical_time(given, '/' || name)::timestamptz;
  end if;
  return null;
exception when datetime_field_overflow or invalid_datetime_format then
  perform settled.invalid('/' || name, 'time', 'must be an RFC 3339 timestamp with an offset');
end $$;
comment on function settled.option_time(jsonb, text) is 'An option that is a point in time, or null.';

create function settled.check_options(options jsonb) returns void
language plpgsql stable
as $$
declare
  stranger text;
begin
  if jsonb_typeof(options) <> 'object' then
    perform settled.invalid('/options', 'type', 'must be an object');
  elsif pg_column_size(options) > 16384 then
    perform settled.invalid('/options', 'size', 'must not be larger than 16 KiB');
  end if;
  select k into stranger from jsonb_object_keys(options) k
  where k not in ('slot', 'occurrence', 'due_at', 'deadline', 'instructed_by', 'traceparent', 'tenant', 'caller_key', 'principal', 'surface')
  order by k limit 1;
  if found then
    perform settled.invalid('/' || settled.pointer_token(left(stranger, 64)), 'unknown', 'is not an option');
  end if;
  if options ?| array['principal', 'surface'] and not settled.is_owner() then
    raise exception using errcode = 'ST403', message = 'options principal and surface are for the owner of the ledger';
  end if;
  if jsonb_typeof(options -> 'occurrence') = 'number' then
    if (options -> 'occurrence')::numeric not between 1 and 1000
        or trunc((options -> 'occurrence')::numeric) <> (options -> 'occurrence')::numeric then
      perform settled.invalid('/occurrence', 'range', 'must be a whole number from 1 to 1000');
    end if;
  elsif jsonb_typeof(options -> 'occurrence') <> 'null' then
    perform settled.invalid('/occurrence', 'type', 'must be a whole number');
  end if;
  if jsonb_typeof(options -> 'instructed_by') not in ('object', 'null') then
    perform settled.invalid('/instructed_by', 'type', 'must be an object of strings');
  elsif jsonb_typeof(options -> 'instructed_by') = 'object' and exists (
      select from jsonb_each(options -> 'instructed_by') e where jsonb_typeof(e.value) <> 'string') then
    perform settled.invalid('/instructed_by', 'type', 'must be an object of strings');
  end if;
end $$;
comment on function settled.check_options(jsonb) is 'Names and types of the options; an unknown one raises.';

create function settled.check_reference(reference text, rules jsonb) returns void
language plpgsql stable
as $$
begin
  if reference is null then
    perform settled.invalid('/reference', 'required', 'must be given');
  elsif length(reference) not between 1 and 120 then
    perform settled.invalid('/reference', 'length', 'must be 1 to 120 characters');
  elsif reference !~ '^[A-Za-z0-9._:-]+$' then
    perform settled.invalid('/reference', 'charset', 'must be of A-Z a-z 0-9 . _ -');
  elsif strpos(reference, ':') > 0 and (rules -> 'asked_by_key') is distinct from 'true' then
    perform settled.invalid('/reference', 'charset', 'must not contain : where the destination is not asked by key');
  elsif rules ->> 'reference_pattern' is not null
      and lower(reference collate "C") !~ ('^(?:' || (rules ->> 'reference_pattern') || ')$') then
    perform settled.invalid('/reference', 'pattern', 'does not match the pattern of the destination');
  end if;
end $$;
comment on function settled.check_reference(text, jsonb) is 'Form of a business reference, and what the destination narrows it to.';

create function settled.text_member(field text, v json, shortest integer, longest integer, lines boolean) returns text
language plpgsql stable
as $$
declare
  given text := v #>> '{}';
begin
  if json_typeof(v) <> 'string' then
    perform settled.invalid(field, 'type', 'must be a string');
  elsif length(given) < shortest or shortest > 0 and btrim(given) = '' then
    perform settled.invalid(field, 'required', 'must not be empty');
  elsif length(given) > longest then
    perform settled.invalid(field, 'length', format('must not be longer than %s characters', longest));
  elsif not lines and given ~ '[\u0001-\u001f\u007f-\u009f\u2028\u2029]' then
    perform settled.invalid(field, 'control_characters', 'must not contain control characters or line breaks');
  end if;
  return given;
end $$;
comment on function settled.text_member(text, json, integer, integer, boolean) is 'A string of the payload; without lines no control character at all.';

create function settled.email_address(field text, v json) returns text
language plpgsql stable
as $$
declare
  given text;
  local text;
  domain text;
begin
  if json_typeof(v) in ('array', 'object') then
    perform settled.invalid(field, 'one_recipient', 'must be one address; several are several intents, named by slot');
  end if;
  given := btrim(settled.text_member(field, v, 1, 400, false), ' ');
  if given ~ '[,;]' or given ~ '@.*@' then
    perform settled.invalid(field, 'one_recipient', 'must be exactly one address; several are several intents, named by slot');
  end if;
  local := normalize(split_part(given, '@', 1), nfc);
  domain := lower(split_part(given, '@', 2) collate "C");
  if domain ~ '[^\u0001-\u007f]' then
    perform settled.invalid(field, 'ascii_domain', 'must have its domain as ASCII, internationalised names as A-labels (xn--…)');
  elsif local !~ '^[^][ ()<>@,;:\\".]+(\.[^][ ()<>@,;:\\".]+)*$' or octet_length(local) > 64 then
    perform settled.invalid(field, 'recipient', 'must be an address local@domain, without a display name, quotes or brackets');
  elsif domain !~ '^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$' or domain ~ '[^.]{64}'
      or octet_length(local) + 1 + length(domain) > 254 then
    perform settled.invalid(field, 'recipient', 'must have a domain name after the @');
  end if;
  return local || '@' || domain;
end $$;
comment on function settled.email_address(text, json) is 'One address in normal form: local part as given (NFC), domain in lower case (RFC 5321; A-labels of RFC 5890).';

create function settled.check_headers(field text, v json) returns void
language plpgsql stable
as $$
declare
  h record;
begin
  if json_typeof(v) <> 'object' then
    perform settled.invalid(field, 'type', 'must be an object of strings');
  end if;
  for h in select e.key as name, e.value, field || '/' || settled.pointer_token(left(e.key, 80)) as at from json_each(v) e loop
    if h.name !~ '^[A-Za-z0-9!#$%&''*+.^_`|~-]{1,76}$' then
      perform settled.invalid(h.at, 'header_name', 'is not the name of a header (RFC 5322 section 3.6.8)');
    elsif lower(h.name collate "C") ~ '^(from|to|cc|bcc|sender|subject|date|message-id|reply-to|return-path|received|mime-version|apparently-to|dkim-signature|arc-.*|authentication-results|content-.*|resent-.*|x-settled-.*)$' then
      perform settled.invalid(h.at, 'reserved_header', 'is set by settled or by the relay');
    end if;
    perform settled.text_member(h.at, h.value, 1, 900, false);
  end loop;
  if (select count(*) > 32 or count(*) <> count(distinct lower(k collate "C")) from json_object_keys(v) k) then
    perform settled.invalid(field, 'header_name', 'must not hold more than 32 headers, or one twice');
  end if;
end $$;
comment on function settled.check_headers(text, json) is 'Extra headers of an email: names, reserved ones, no control characters.';

create function settled.check_attachments(field text, v json) returns void
language plpgsql stable
as $$
declare
  a record;
  stranger text;
begin
  if json_typeof(v) <> 'array' or json_array_length(v) > 20 then
    perform settled.invalid(field, 'type', 'must be an array of at most 20 attachments');
  end if;
  for a in select e.value, field || '/' || e.n - 1 as at from json_array_elements(v) with ordinality e (value, n) loop
    if json_typeof(a.value) <> 'object' then
      perform settled.invalid(a.at, 'type', 'must be an object');
    end if;
    select k into stranger from json_object_keys(a.value) k where k not in ('filename', 'content_type', 'content_base64') limit 1;
    if found then
      perform settled.invalid(a.at || '/' || settled.pointer_token(left(stranger, 64)), 'unknown', 'is not a member of an attachment');
    elsif a.value -> 'filename' is null or a.value -> 'content_type' is null or a.value -> 'content_base64' is null then
      perform settled.invalid(a.at, 'required', 'needs filename, content_type and content_base64');
    end if;
    if settled.text_member(a.at || '/filename', a.value -> 'filename', 1, 255, false) ~ '[/\\]' then
      perform settled.invalid(a.at || '/filename', 'charset', 'must be a name without a path');
    elsif settled.text_member(a.at || '/content_type', a.value -> 'content_type', 3, 200, false)
        !~* '^[a-z0-9][a-z0-9!#$&^_.+-]*/[a-z0-9][a-z0-9!#$&^_.+-]*( *; *[a-z0-9-]+=("[^"\\]*"|[a-z0-9!#$&^_.+-]+))*$' then
      perform settled.invalid(a.at || '/content_type', 'content_type', 'must be a media type such as application/pdf');
    elsif settled.text_member(a.at || '/content_base64', a.value -> 'content_base64', 0, 262144, false) !~ '^[A-Za-z0-9+/]*={0,2}$'
        or length(a.value ->> 'content_base64') % 4 <> 0 then
      perform settled.invalid(a.at || '/content_base64', 'base64', 'must be base64 (RFC 4648 section 4) in one line');
    end if;
  end loop;
end $$;
comment on function settled.check_attachments(text, json) is 'Attachments of an email: name, media type, content in base64.';

create function settled.check_email(payload json) returns text
language plpgsql stable
as $$
declare
  m record;
begin
  for m in select e.key as name, e.value, '/payload/' || settled.pointer_token(left(e.key, 64)) as at from json_each(payload) e loop
    case m.name
    when 'to' then null;
    when 'subject' then perform settled.text_member(m.at, m.value, 1, 500, false);
    when 'text', 'html' then perform settled.text_member(m.at, m.value, 1, 262144, true);
    when 'reply_to' then perform settled.email_address(m.at, m.value);
    when 'from_name' then perform settled.text_member(m.at, m.value, 1, 200, false);
    when 'headers' then perform settled.check_headers(m.at, m.value);
    when 'attachments' then perform settled.check_attachments(m.at, m.value);
    when 'cc', 'bcc' then perform settled.invalid(m.at, 'one_recipient', 'is not possible: one intent reaches one recipient');
    else perform settled.invalid(m.at, 'unknown', 'is not a member of an email');
    end case;
  end loop;
  if payload -> 'to' is null then
    perform settled.invalid('/payload/to', 'required', 'must be given');
  elsif payload -> 'subject' is null then
    perform settled.invalid('/payload/subject', 'required', 'must be given');
  elsif payload -> 'text' is null and payload -> 'html' is null then
    perform settled.invalid('/payload/text', 'required', 'must be given, or html');
  end if;
  return settled.email_address('/payload/to', payload -> 'to');
end $$;
comment on function settled.check_email(json) is 'Members of an email; answers the recipient in normal form.';

create function settled.check_sms(payload json) returns text
language plpgsql stable
as $$
declare
  stranger text;
  recipient text;
begin
  select k into stranger from json_object_keys(payload) k where k not in ('to', 'text') limit 1;
  if found then
    perform settled.invalid('/payload/' || settled.pointer_token(left(stranger, 64)), 'unknown', 'is not a member of a text message');
  elsif payload -> 'to' is null then
    perform settled.invalid('/payload/to', 'required', 'must be given');
  elsif payload -> 'text' is null then
    perform settled.invalid('/payload/text', 'required', 'must be given');
  elsif json_typeof(payload -> 'to') in ('array', 'object') then
    perform settled.invalid('/payload/to', 'one_recipient', 'must be one number; several are several intents, named by slot');
  end if;
  perform settled.text_member('/payload/text', payload -> 'text', 1, 1600, true);
  recipient := btrim(settled.text_member('/payload/to', payload -> 'to', 1, 64, false), ' ');
  if recipient !~ '^\+[1-9][0-9]{6,14}$' then
    perform settled.invalid('/payload/to', 'e164', 'must be a number in E.164 form, such as +491701234567');
  end if;
  return recipient;
end $$;
comment on function settled.check_sms(json) is 'Members of a text message; answers the number in E.164 form.';

create function settled.check_payload(channel text, payload json) returns text
language plpgsql stable
as $$
begin
  if json_typeof(payload) <> 'object' then
    perform settled.invalid('/payload', 'type', 'must be a JSON object');
  end if;
  case channel
  when 'smtp' then return settled.check_email(payload);
  when 'sms' then return settled.check_sms(payload);
  when 'webhook' then return '';
  else
    perform settled.invalid('/destination', 'unsupported', format('channel %s is not served by this version', channel));
    return null;
  end case;
end $$;
comment on function settled.check_payload(text, json) is 'Members of a payload by channel; answers the recipient in normal form, empty for webhooks.';

revoke all on all functions in schema settled from public;
