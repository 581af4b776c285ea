//! Everything of ours in a window: items that carry a key, whoever asked for them.

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::{Http, reading::Evidence, request, settings::Per};
use crate::domain::{
    plain::plain,
    question::{AccountSeen, Hit, Marked, is_key},
};

impl Http {
    /// `None` where it does not list or its items show no key.
    pub(super) async fn marked_in(&self, from: DateTime<Utc>, until: DateTime<Utc>) -> Option<Marked> {
        let key_at = self.plan.answer.key_at.as_deref().filter(|_| self.plan.per == Per::Window)?;
        let end = request::end(self.plan.within);
        let mut evidence = Evidence::default();
        let (account, flaw) = self.account(end, &mut evidence).await;
        if flaw.is_some() || matches!(account, AccountSeen::Differs { .. }) {
            return Some(Marked { items: Vec::new(), calls: 1 });
        }
        let reading = self.read(&self.values(None, from, until), end, &mut evidence).await;
        let text = |item: &Value, at: Option<&str>| {
            at.and_then(|at| item.pointer(at)).and_then(Value::as_str).map(|text| plain(text.trim()))
        };
        let answer = &self.plan.answer;
        let items = reading.items.iter().filter_map(|item| {
            let key = text(item, Some(key_at)).filter(|key| is_key(key))?;
            Some(Hit {
                id: text(item, answer.id_at.as_deref()),
                key: Some(key),
                reference: text(item, answer.reference_at.as_deref()),
                attempt: None,
                at: None,
                status: text(item, answer.status_at.as_deref()),
                other_recipient: false,
                contradicts: None,
            })
        });
        Some(Marked { items: items.collect(), calls: evidence.pages + 1 })
    }
}
