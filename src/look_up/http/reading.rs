//! Reading a list to its end, or saying why the end was not reached.

use std::time::Duration;

use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::{
    Http,
    paging::{self, Next, Place, Read},
    request,
};
use crate::look_up::template::Values;

/// Most items of one reading, over all pages. A page of a few MiB may hold millions of values, each many times as large in
/// memory as it was on the wire.
const ITEMS: usize = 100_000;

/// What one reading brought.
pub(super) struct Reading {
    /// Everything that was listed, over all pages.
    pub items: Vec<Value>,
    /// What the status said where it speaks for itself.
    pub found: Found,
    /// Why this is not all there is. Items that were read stay what they are.
    pub flaw: Option<String>,
}

/// What the status said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// Look at the items.
    Listed,
    /// Nothing at this address.
    Absent,
    /// Several at this address.
    Many,
}

/// Evidence over all requests of one question.
#[derive(Default)]
pub(super) struct Evidence {
    hash: Sha256,
    /// Pages read.
    pub pages: u32,
    /// The downstream wants to be left alone for so long.
    pub retry_after: Option<Duration>,
}

impl Evidence {
    fn add(&mut self, status: u16, body: &[u8]) {
        self.pages += 1;
        self.hash.update(status.to_be_bytes());
        self.hash.update((body.len() as u64).to_be_bytes());
        self.hash.update(body);
    }

    /// SHA-256 over statuses, lengths and bodies, hex.
    pub fn digest(self) -> String {
        hex(&self.hash.finalize())
    }
}

/// Lower-case hex.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Http {
    /// Reads all pages of one request.
    pub(super) async fn read(&self, values: &Values<'_>, end: Instant, evidence: &mut Evidence) -> Reading {
        let mut reading = Reading { items: Vec::new(), found: Found::Listed, flaw: None };
        match request::render(&self.plan, values) {
            Ok(first) => {
                if let Err(flaw) = self.read_pages(first, end, evidence, &mut reading).await {
                    reading.flaw = Some(flaw);
                }
            }
            Err(refused) => reading.flaw = Some(refused.to_string()),
        }
        reading
    }

    async fn read_pages(
        &self,
        first: Place,
        end: Instant,
        evidence: &mut Evidence,
        reading: &mut Reading,
    ) -> Result<(), String> {
        let answer = &self.plan.answer;
        let readable = [answer.ok.as_slice(), answer.many.as_slice()].concat();
        let mut here = first;
        let mut known_places = Vec::new();
        let mut known_pages = Vec::new();
        for number in 1..=self.plan.pages.max {
            known_places.push(here.clone());
            let page = self.fetch(&self.plan.method, &here, &readable, end, evidence).await?;
            evidence.add(page.status, &page.raw);
            if number == 1 && answer.absent.contains(&page.status) {
                reading.found = Found::Absent;
                return Ok(());
            }
            if answer.many.contains(&page.status) {
                reading.found = Found::Many;
            } else if !answer.ok.contains(&page.status) {
                return Err(format!("status {} is no answer", page.status));
            }
            let Some(value) = &page.body else {
                // HEAD: the status is all there is; the path names the intent.
                reading.items.push(Value::Object(serde_json::Map::new()));
                return Ok(());
            };
            let items = self.items(value)?;
            let count = items.len();
            if reading.items.len() + count > ITEMS {
                return Err(format!("more than {ITEMS} items"));
            }
            let mut print = Sha256::new();
            for item in items {
                print.update(item.to_string());
                print.update([0]);
            }
            let print: [u8; 32] = print.finalize().into();
            if known_pages.contains(&print) {
                return Err("the same page came twice".to_owned());
            }
            known_pages.push(print);
            reading.items.extend(items.iter().cloned());
            let read = Read { page: &page, body: value, items, number: number - 1, total: reading.items.len() };
            match paging::next(&self.plan.pages, &here, &read)? {
                Next::End => return Ok(()),
                Next::Page(next) if known_places.contains(&next) => {
                    return Err("the next page is one that was read before".to_owned());
                }
                Next::Page(next) => here = next,
            }
        }
        Err(format!("more than {} pages", self.plan.pages.max))
    }

    /// The items of one page, after its assertions.
    fn items<'a>(&self, body: &'a Value) -> Result<&'a [Value], String> {
        let answer = &self.plan.answer;
        for (pointer, expected) in &answer.asserted {
            if body.pointer(pointer) != Some(expected) {
                return Err(format!("the answer does not have what must stand at {pointer:?}"));
            }
        }
        match body.pointer(&answer.items) {
            Some(Value::Array(items)) => Ok(items),
            Some(item @ Value::Object(_)) => Ok(std::slice::from_ref(item)),
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
                Err(format!("neither a list nor an object stands at {:?}", answer.items))
            }
            None => Err(format!("nothing stands at {:?}, where the items should be", answer.items)),
        }
    }
}
