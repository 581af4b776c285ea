//! Where a list goes on, and whether it has ended. Pure; called by `reading` after each page.

use serde_json::Value;
use url::Url;

use super::{
    request::{self, Page},
    settings::{Counter, Cursor, Pages},
};

/// One page's request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Place {
    pub url: Url,
    /// The body of a POST.
    pub json: Option<Value>,
}

/// Where reading goes on.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    Page(Place),
    End,
}

/// What was read so far.
pub(super) struct Read<'a> {
    pub page: &'a Page,
    pub body: &'a Value,
    pub items: &'a [Value],
    /// Pages before this one.
    pub number: u32,
    /// Items of all pages together.
    pub total: usize,
}

/// After a page: the next one, the end, or why neither can be told.
pub(super) fn next(pages: &Pages, here: &Place, read: &Read<'_>) -> Result<Next, String> {
    if let Some(at) = &pages.total_at {
        let said =
            read.body.pointer(at).and_then(Value::as_u64).ok_or_else(|| format!("no number stands at {at:?}"))?;
        let total = read.total as u64;
        if total > said {
            return Err(format!("the downstream counts {said} items and showed {total}"));
        }
        if total == said {
            return Ok(Next::End);
        }
        return match further(pages, here, read, true)? {
            Some(place) if !read.items.is_empty() => Ok(Next::Page(place)),
            Some(_) | None => Err(format!("the downstream counts {said} items and showed {total}")),
        };
    }
    let more = match &pages.more_at {
        Some(at) => match read.body.pointer(at) {
            Some(Value::Bool(more)) => Some(*more),
            Some(Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_)) | None => {
                return Err(format!("neither true nor false stands at {at:?}"));
            }
        },
        None => None,
    };
    if more == Some(false) {
        return Ok(Next::End);
    }
    match further(pages, here, read, more == Some(true))? {
        Some(place) => Ok(Next::Page(place)),
        None if more == Some(true) => Err("there is more, but nothing says where".to_owned()),
        None if pages.full_page.is_some_and(|full| read.items.len() >= full) && !counts(pages) => {
            Err("the last page is full, so there may be more".to_owned())
        }
        None => Ok(Next::End),
    }
}

/// Whether pages are counted by us, so that an empty one is the end.
fn counts(pages: &Pages) -> bool {
    pages.offset.is_some() || pages.page.is_some()
}

fn further(pages: &Pages, here: &Place, read: &Read<'_>, said: bool) -> Result<Option<Place>, String> {
    if let Some(at) = &pages.next_at {
        return text(read.body, at)?.map(|link| follow(here, &link)).transpose();
    }
    if pages.link_header {
        return linked(&read.page.links)?.map(|link| follow(here, &link)).transpose();
    }
    if let Some(cursor) = &pages.cursor {
        return by_cursor(cursor, here, read, said);
    }
    // Only an empty page ends what is counted: a server may give fewer than were asked for.
    if read.items.is_empty() {
        return Ok(None);
    }
    if let Some(counter) = &pages.offset {
        return put(counter, here, read.total as u64).map(Some);
    }
    if let Some(counter) = &pages.page {
        return put(counter, here, counter.first + u64::from(read.number) + 1).map(Some);
    }
    Ok(None)
}

/// A link inside the origin that was asked.
fn follow(here: &Place, link: &str) -> Result<Place, String> {
    let next = here.url.join(link).map_err(|_| "the link to the next page is no url".to_owned())?;
    if next.origin() != here.url.origin() {
        return Err("the next page is said to be at another origin".to_owned());
    }
    Ok(Place { url: next, json: here.json.clone() })
}

fn by_cursor(cursor: &Cursor, here: &Place, read: &Read<'_>, said: bool) -> Result<Option<Place>, String> {
    let value = match (&cursor.at, &cursor.last_at) {
        (Some(at), _) => text(read.body, at)?,
        // The name of the last item: only `more_at` or `total_at` say whether anything follows it.
        (None, Some(at)) if said => match read.items.last() {
            Some(last) => Some(text(last, at)?.ok_or_else(|| format!("the last item has nothing at {at:?}"))?),
            None => None,
        },
        (None, Some(_) | None) => None,
    };
    let Some(value) = value else { return Ok(None) };
    let mut next = here.clone();
    if let Some(query) = &cursor.query {
        request::set(&mut next.url, query, &value);
    }
    if let Some(at) = &cursor.body {
        place(&mut next, at, Value::String(value))?;
    }
    Ok(Some(next))
}

fn put(counter: &Counter, here: &Place, value: u64) -> Result<Place, String> {
    let mut next = here.clone();
    if let Some(query) = &counter.query {
        request::set(&mut next.url, query, &value.to_string());
    }
    if let Some(at) = &counter.body {
        place(&mut next, at, Value::from(value))?;
    }
    Ok(next)
}

fn place(next: &mut Place, at: &str, value: Value) -> Result<(), String> {
    let slot = next.json.as_mut().and_then(|json| json.pointer_mut(at));
    *slot.ok_or_else(|| format!("the request has nothing at {at:?}"))? = value;
    Ok(())
}

/// A link or cursor; missing, null, false and empty mean the end.
fn text(body: &Value, at: &str) -> Result<Option<String>, String> {
    match body.pointer(at) {
        None | Some(Value::Null | Value::Bool(false)) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
        Some(Value::Number(number)) => Ok(Some(number.to_string())),
        Some(Value::Bool(true) | Value::Array(_) | Value::Object(_)) => {
            Err(format!("what stands at {at:?} is no link to a next page"))
        }
    }
}

/// The target of `rel="next"` in Link headers (RFC 8288). A header that cannot be read is no end.
fn linked(headers: &[String]) -> Result<Option<String>, String> {
    let broken = || "the link header cannot be read".to_owned();
    let mut found = None;
    for header in headers {
        let mut rest = header.trim();
        while !rest.is_empty() {
            let inside = rest.strip_prefix('<').ok_or_else(broken)?;
            let (target, after) = inside.split_once('>').ok_or_else(broken)?;
            let end = link_end(after);
            let (parameters, next) = after.split_at(end);
            let is_next = parameters.split(';').any(|parameter| {
                let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
                name.trim().eq_ignore_ascii_case("rel")
                    && value
                        .trim()
                        .trim_matches('"')
                        .split_ascii_whitespace()
                        .any(|rel| rel.eq_ignore_ascii_case("next"))
            });
            if is_next && found.replace(target.to_owned()).is_some_and(|before| before != target) {
                return Err("the link header names two next pages".to_owned());
            }
            rest = next.trim_start_matches(',').trim_start();
        }
    }
    Ok(found)
}

/// Where the parameters of a link end: at the comma that stands in no quotes.
fn link_end(text: &str) -> usize {
    let mut quoted = false;
    for (at, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => return at,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops loudly")]

    use super::*;

    #[test]
    fn a_link_header_names_the_next_page_or_is_refused() {
        let one = |text: &str| linked(&[text.to_owned()]);
        assert_eq!(
            one("<https://h/a?page=1>; rel=\"prev\", <https://h/a?page=3>; rel=\"next\"").unwrap().unwrap(),
            "https://h/a?page=3"
        );
        assert_eq!(one("</a,b>; title=\"x, y\"; rel=next").unwrap().unwrap(), "/a,b");
        assert_eq!(one("</a>; rel=\"last next\"").unwrap().unwrap(), "/a");
        assert_eq!(one("</a>; rel=last").unwrap(), None);
        assert_eq!(linked(&[]).unwrap(), None);
        one("https://h/a; rel=next").unwrap_err();
        one("</a>; rel=next, </b>; rel=next").unwrap_err();
        one("<").unwrap_err();
    }
}
