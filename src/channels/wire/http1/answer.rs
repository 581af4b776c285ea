//! Reading an answer's body into a cap that counts decompressed bytes.

use std::{
    io::Read,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::{HeaderMap, header};
use hyper::body::{Body, Incoming};

/// What has been read from the wire so far.
pub(super) struct Raw {
    pub(super) bytes: Vec<u8>,
    cap: usize,
}

impl Raw {
    pub(super) fn new(cap: usize) -> Self {
        Self { bytes: Vec::new(), cap }
    }

    /// Ready with `true` at the body's end, with `false` at the cap or an error.
    pub(super) fn poll(&mut self, body: &mut Incoming, cx: &mut Context<'_>) -> Poll<bool> {
        loop {
            match ready!(Pin::new(&mut *body).poll_frame(cx)) {
                None => return Poll::Ready(true),
                Some(Err(_broken)) => return Poll::Ready(false),
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else { continue };
                    let room = self.cap - self.bytes.len();
                    self.bytes.extend_from_slice(&data[..data.len().min(room)]);
                    if data.len() > room {
                        return Poll::Ready(false);
                    }
                }
            }
        }
    }
}

/// The body as text or JSON would be read, and whether it is cut. An unknown or stacked encoding stays as it came.
pub(super) fn decode(headers: &HeaderMap, raw: Vec<u8>, ended: bool, cap: usize) -> (Vec<u8>, bool) {
    let encoding = headers.get(header::CONTENT_ENCODING).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let encodings = headers.get_all(header::CONTENT_ENCODING).iter().count();
    let name = encoding.trim().to_ascii_lowercase();
    let (body, whole) = match name.as_str() {
        _ if encodings > 1 || raw.is_empty() => (raw, true),
        "gzip" | "x-gzip" => inflate(flate2::read::MultiGzDecoder::new(raw.as_slice()), cap),
        // RFC 9110 8.4.1.2 means zlib; some send the bare stream.
        "deflate" => match inflate(flate2::read::ZlibDecoder::new(raw.as_slice()), cap) {
            (body, false) if body.is_empty() => inflate(flate2::read::DeflateDecoder::new(raw.as_slice()), cap),
            done => done,
        },
        _ => (raw, true),
    };
    (body, !(ended && whole))
}

fn inflate(decoder: impl Read, cap: usize) -> (Vec<u8>, bool) {
    let mut out = Vec::new();
    let mut limited = decoder.take(cap as u64 + 1);
    let fine = limited.read_to_end(&mut out).is_ok();
    let whole = fine && out.len() <= cap;
    out.truncate(cap);
    (out, whole)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops loudly")]

    use std::io::Write;

    use flate2::{Compression, write};
    use http::HeaderValue;

    use super::*;

    fn headers(encoding: &'static str) -> HeaderMap {
        let mut map = HeaderMap::new();
        map.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
        map
    }

    #[test]
    fn gzip_and_both_forms_of_deflate_are_read() {
        let text = b"{\"id\":\"m-1\"}".to_vec();
        let mut gzip = write::GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&text).unwrap();
        let mut zlib = write::ZlibEncoder::new(Vec::new(), Compression::fast());
        zlib.write_all(&text).unwrap();
        let mut bare = write::DeflateEncoder::new(Vec::new(), Compression::fast());
        bare.write_all(&text).unwrap();
        assert_eq!(decode(&headers("gzip"), gzip.finish().unwrap(), true, 100), (text.clone(), false));
        assert_eq!(decode(&headers("deflate"), zlib.finish().unwrap(), true, 100), (text.clone(), false));
        assert_eq!(decode(&headers("deflate"), bare.finish().unwrap(), true, 100), (text, false));
    }

    #[test]
    fn a_bomb_is_cut_at_the_cap_and_says_so() {
        let mut gzip = write::GzEncoder::new(Vec::new(), Compression::best());
        gzip.write_all(&vec![b'0'; 4 << 20]).unwrap();
        let (body, truncated) = decode(&headers("gzip"), gzip.finish().unwrap(), true, 1000);
        assert_eq!((body.len(), truncated), (1000, true));
    }

    #[test]
    fn broken_compression_is_truncated_and_an_unknown_encoding_stays_raw() {
        assert_eq!(decode(&headers("gzip"), b"not gzip".to_vec(), true, 100), (vec![], true));
        assert_eq!(decode(&headers("br"), b"\x01\x02".to_vec(), true, 100), (b"\x01\x02".to_vec(), false));
        assert_eq!(decode(&headers("gzip, gzip"), b"\x1f".to_vec(), true, 100), (b"\x1f".to_vec(), false));
    }
}
