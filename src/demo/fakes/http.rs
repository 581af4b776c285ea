//! HTTP/1.1 for the fakes: whole requests in, any kind of ending out.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use percent_encoding::percent_decode_str;
use tokio::{net::TcpStream, sync::mpsc};

use super::{
    door::{Serve, reset},
    faults::{Ending, Instead},
};
use crate::domain::gate::BoxFuture;

/// A request that was read to its last byte.
#[derive(Debug, Clone)]
pub struct Request {
    /// GET, POST, …
    pub method: String,
    /// Decoded path.
    pub path: String,
    /// Decoded query, in order.
    pub query: Vec<(String, String)>,
    /// Head fields.
    pub headers: http::HeaderMap,
    /// The body as it came.
    pub body: Bytes,
}

impl Request {
    /// A head field as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The first value of a query member.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Response {
    /// Status.
    pub status: u16,
    /// Head fields besides content-type and content-length.
    pub headers: Vec<(&'static str, String)>,
    /// Media type.
    pub content_type: &'static str,
    /// Body.
    pub body: Bytes,
}

impl Response {
    /// A JSON answer.
    pub fn json(status: u16, value: &serde_json::Value) -> Self {
        Self { status, headers: Vec::new(), content_type: "application/json", body: value.to_string().into() }
    }

    /// A false answer, as a fault wants it.
    pub fn instead(instead: Instead) -> Self {
        match instead {
            Instead::Status(code) => Self::json(code, &serde_json::json!({"error": format!("status {code}")})),
            Instead::Page => Self {
                status: 200,
                headers: Vec::new(),
                content_type: "text/html; charset=utf-8",
                body: Bytes::from_static(
                    b"<!doctype html><title>Sign in</title><form><input name=user><input name=password></form>",
                ),
            },
        }
    }

    /// Adds a head field.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// A fake's side of HTTP.
pub trait App: Send + Sync + 'static {
    /// Answers one request, or does not.
    fn handle(&self, request: Request) -> BoxFuture<'_, Ending<Response>>;
}

/// Serves an app on every connection of a door.
pub fn serve(app: Arc<dyn App>) -> Serve {
    Arc::new(move |stream| {
        let app = Arc::clone(&app);
        Box::pin(conversation(stream, app))
    })
}

enum Cut {
    Reset,
    Close,
}

async fn conversation(stream: TcpStream, app: Arc<dyn App>) {
    let (cut, mut cuts) = mpsc::channel(1);
    let service = service_fn(|request| {
        let (app, cut) = (Arc::clone(&app), cut.clone());
        async move {
            let request = read(request).await?;
            let how = match app.handle(request).await {
                Ending::Answer(response) => return Ok::<_, hyper::Error>(whole(response)),
                Ending::Half(response) => return Ok(half(response)),
                Ending::Reset => Some(Cut::Reset),
                Ending::Close => Some(Cut::Close),
                Ending::Never => None,
            };
            if let Some(how) = how {
                let _ = cut.send(how).await;
            }
            // The connection is cut from outside, or ends when the client gives up.
            std::future::pending().await
        }
    });
    let mut conversation = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        _ = &mut conversation => {}
        how = cuts.recv() => {
            let stream = conversation.into_parts().io.into_inner();
            match how {
                Some(Cut::Reset) => reset(stream),
                Some(Cut::Close) | None => drop(stream),
            }
        }
    }
}

async fn read(request: http::Request<Incoming>) -> Result<Request, hyper::Error> {
    let (head, body) = request.into_parts();
    // An incomplete body is an error here: the fake never acts on half a request.
    let body = body.collect().await?.to_bytes();
    Ok(Request {
        method: head.method.to_string(),
        path: percent_decode_str(head.uri.path()).decode_utf8_lossy().into_owned(),
        query: pairs(head.uri.query().unwrap_or_default().as_bytes()),
        headers: head.headers,
        body,
    })
}

/// Decodes `application/x-www-form-urlencoded`.
pub fn pairs(text: &[u8]) -> Vec<(String, String)> {
    url::form_urlencoded::parse(text).into_owned().collect()
}

fn head(response: &Response) -> http::response::Builder {
    let mut head = http::Response::builder().status(response.status).header("content-type", response.content_type);
    for (name, value) in &response.headers {
        head = head.header(*name, value);
    }
    head
}

type Body = BoxBody<Bytes, std::io::Error>;

fn whole(response: Response) -> http::Response<Body> {
    let head = head(&response);
    let body = Full::new(response.body).map_err(|never: Infallible| match never {}).boxed();
    head.body(body).unwrap_or_else(|_| http::Response::new(nothing()))
}

fn half(response: Response) -> http::Response<Body> {
    let head = head(&response).header("content-length", response.body.len());
    let first = response.body.slice(..response.body.len() / 2);
    // Yields once between the half and the error, so that the half is flushed before the connection ends.
    let frames = stream::unfold(0, move |step| {
        let first = first.clone();
        async move {
            match step {
                0 => Some((Ok(Frame::data(first)), 1)),
                1 => {
                    tokio::task::yield_now().await;
                    Some((Err(std::io::Error::other("closed in the middle, as ordered")), 2))
                }
                _ => None,
            }
        }
    });
    head.body(BodyExt::boxed(StreamBody::new(Box::pin(frames)))).unwrap_or_else(|_| http::Response::new(nothing()))
}

fn nothing() -> Body {
    Full::new(Bytes::new()).map_err(|never: Infallible| match never {}).boxed()
}
