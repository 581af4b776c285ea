//! A receiver that keeps idempotency keys: the same key gets the stored answer again.

use std::{collections::HashMap, sync::Mutex};

use bytes::Bytes;

use super::{http::Response, locked};

struct Kept {
    body: Bytes,
    answer: Response,
}

/// Answers by key.
#[derive(Default)]
pub struct Keys {
    kept: Mutex<HashMap<String, Kept>>,
}

impl Keys {
    /// The stored answer, marked as replayed; 422 when the key came with another body.
    pub fn replay(&self, key: &str, body: &Bytes) -> Option<Response> {
        let kept = locked(&self.kept);
        let kept = kept.get(key)?;
        if kept.body != body {
            let words = serde_json::json!({"error": "this key was used with another body"});
            return Some(Response::json(422, &words));
        }
        Some(kept.answer.clone().with("idempotent-replayed", "true"))
    }

    /// Stores the first answer to a key.
    pub fn store(&self, key: &str, body: Bytes, answer: &Response) {
        locked(&self.kept).entry(key.to_owned()).or_insert_with(|| Kept { body, answer: answer.clone() });
    }

    /// The keys' life is over.
    pub fn forget_all(&self) {
        locked(&self.kept).clear();
    }
}
