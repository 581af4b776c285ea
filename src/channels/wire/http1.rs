//! One HTTP/1.1 exchange on one fresh connection. (being written)

/// One request. The target's host and port come from `url`.
#[derive(Clone)]
pub struct Request {
    /// Method.
    pub method: http::Method,
    /// Absolute URL, http or https.
    pub url: url::Url,
    /// Headers beside Host and Content-Length.
    pub headers: Vec<(http::HeaderName, http::HeaderValue)>,
    /// Body bytes; always sent with Content-Length.
    pub body: bytes::Bytes,
}
