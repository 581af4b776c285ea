//! Who the downstream says we are: a wrong server, tenant or sandbox has nothing of ours, and says so truthfully.

use serde_json::Value;
use tokio::time::Instant;

use super::{Http, paging::Place, reading::Evidence};
use crate::domain::question::AccountSeen;

/// Longest value that is kept as evidence, characters.
const KEPT: usize = 100;

impl Http {
    /// Asks for the account. The second part says why it could not be read; nothing that is missing is believed then.
    pub(super) async fn account(&self, end: Instant, evidence: &mut Evidence) -> (AccountSeen, Option<String>) {
        let Some(account) = &self.plan.account else {
            return (AccountSeen::NotChecked, None);
        };
        let place = Place { url: account.url.clone(), json: account.json.clone() };
        let method = if account.json.is_some() { http::Method::POST } else { http::Method::GET };
        let page = self.fetch(&method, &place, &[200], end, evidence).await;
        let body = match page {
            Ok(page) => match page.body {
                Some(body) => body,
                None => return unread(&format!("status {}", page.status)),
            },
            Err(why) => return unread(&why),
        };
        let seen: Vec<String> = account
            .expect
            .keys()
            .map(|pointer| format!("{pointer}={}", body.pointer(pointer).map_or_else(|| "missing".to_owned(), shown)))
            .collect();
        let seen = seen.join(" ");
        if account.expect.iter().all(|(pointer, expected)| body.pointer(pointer) == Some(expected)) {
            (AccountSeen::Matches { identity: seen }, None)
        } else {
            (AccountSeen::Differs { seen }, None)
        }
    }
}

fn unread(why: &str) -> (AccountSeen, Option<String>) {
    (AccountSeen::NotChecked, Some(format!("the account could not be checked: {why}")))
}

fn shown(value: &Value) -> String {
    value.to_string().chars().take(KEPT).collect()
}
