//! The head of a request and its exact size.

use http::{HeaderName, HeaderValue, Uri, header};

use super::Request;

/// These belong to the connection, which is ours alone while the exchange lasts.
const OURS: [HeaderName; 9] = [
    header::HOST,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::CONNECTION,
    header::EXPECT,
    header::UPGRADE,
    header::TE,
    header::TRAILER,
    HeaderName::from_static("keep-alive"),
];

/// The head; with `keep` the connection may be kept for another request.
pub(super) fn build(request: &Request, keep: bool) -> Result<http::request::Parts, String> {
    let url = &request.url;
    let host = url.host_str().filter(|h| !h.is_empty()).ok_or("the URL names no host")?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("scheme {} is neither http nor https", url.scheme()));
    }
    if request.method == http::Method::CONNECT {
        return Err("method CONNECT opens a tunnel".to_owned());
    }
    let path = url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()));
    let uri: Uri = path.parse().map_err(|e| format!("path of the URL: {e}"))?;
    let authority = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    let (mut parts, ()) = http::Request::new(()).into_parts();
    parts.method = request.method.clone();
    parts.uri = uri;
    parts.headers.insert(header::HOST, HeaderValue::from_str(&authority).map_err(|e| format!("host: {e}"))?);
    for (name, value) in request.headers.iter().filter(|(name, _)| !OURS.contains(name)) {
        parts.headers.append(name, value.clone());
    }
    if !keep {
        // One request for one connection, said aloud so that the peer does not wait for another.
        parts.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    if !(request.body.is_empty() && matches!(request.method, http::Method::GET | http::Method::HEAD)) {
        parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(request.body.len()));
    }
    Ok(parts)
}

/// The exact size of the request in bytes: RFC 9112 head as hyper writes it, and body.
pub(super) fn needed(head: &http::request::Parts, request: &Request) -> u64 {
    let line = head.method.as_str().len() + 1 + head.uri.to_string().len() + " HTTP/1.1\r\n".len();
    let headers: usize = head.headers.iter().map(|(name, value)| name.as_str().len() + 2 + value.len() + 2).sum();
    (line + headers + 2 + request.body.len()) as u64
}
