//! A response body, read in chunks.
//!
//! Invariant: the size of the body and the time to read it are limited.

use std::time::Duration;

use bytes::Bytes;
use reqwest::Response;
use reqwest::header::{CONTENT_TYPE, HeaderMap};

use crate::http::error::HttpError;

/// Maximum number of bytes that are read of an error response. The rest is discarded together with
/// the connection.
const ERROR_BODY_BYTES_MAX: usize = 64 * 1024;

/// Maximum time to read an error response.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Content types of responses that are not an event stream. If the body nevertheless starts like an
/// event stream, it is read as one.
const NON_STREAM_TYPES: &[&str] = &["application/json", "text/html"];

/// Possible first bytes of an event stream. JSON and HTML never start with these bytes.
const STREAM_PREFIXES: &[&[u8]] = &[b"data:", b"event:", b"id:", b"retry:", b":"];

/// Timeouts and size limits of one exchange with a provider's server. A stream has no total timeout:
/// it may take as long as the reply makes progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpLimits {
    /// Maximum time to open a connection.
    pub connect: Duration,
    /// Timeout for the response headers, and again for the first bytes of the body: some servers
    /// send the headers before they have processed the request.
    pub first_byte: Duration,
    /// Maximum time between two chunks of a response body.
    pub idle: Duration,
    /// Timeout for a stream that sends only keep-alive events and no part of the reply, and for
    /// reading the complete body of a response that is not a stream.
    pub stall: Duration,
    /// Maximum size of a response body in bytes.
    pub max_bytes: usize,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_secs(120),
            idle: Duration::from_secs(60),
            stall: Duration::from_secs(600),
            max_bytes: 50 * 1024 * 1024,
        }
    }
}

/// A response whose body is read with a limited size and within a limited time.
#[derive(Debug)]
pub(crate) struct LimitedResponse {
    response: Response,
    limits: HttpLimits,
    bytes_read: usize,
    /// Bytes that were read to detect an event stream and have not yet been returned to the caller.
    peeked: Option<Bytes>,
}

impl LimitedResponse {
    pub(super) const fn new(response: Response, limits: HttpLimits) -> Self {
        Self { response, limits, bytes_read: 0, peeked: None }
    }

    pub(crate) fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// Returns whether the response may be an event stream. A missing or unknown content type
    /// counts as an event stream, because a stream was requested.
    pub(crate) fn is_event_stream(&self) -> bool {
        let content_type = self.headers().get(CONTENT_TYPE);
        let content_type = content_type.map_or(&b""[..], |content_type| content_type.as_bytes());
        let content_type = String::from_utf8_lossy(content_type).to_ascii_lowercase();
        !NON_STREAM_TYPES.iter().any(|kind| content_type.starts_with(kind))
    }

    /// Returns the next chunk of the body. `None` means the end of the body.
    pub(crate) async fn next_chunk(&mut self) -> Result<Option<Bytes>, HttpError> {
        if let Some(chunk) = self.peeked.take() {
            return Ok(Some(chunk));
        }
        let (wait, timeout_error) = match self.bytes_read {
            0 => (self.limits.first_byte, "received no response within"),
            _ => (self.limits.idle, "received no data for"),
        };
        let next = tokio::time::timeout(wait, self.response.chunk()).await;
        let next = next.map_err(|_| HttpError::timeout(timeout_error, wait))?;
        let piece = next.map_err(HttpError::from_body_error)?;
        self.bytes_read += piece.as_ref().map_or(0, Bytes::len);
        match self.bytes_read > self.limits.max_bytes {
            true => Err(HttpError::too_long("the response", self.limits.max_bytes)),
            false => Ok(piece),
        }
    }

    /// Reads the complete body, within the stall timeout. `None` means that the body is an event
    /// stream in spite of its content type and must be read chunk by chunk.
    pub(crate) async fn read_body_unless_stream(&mut self) -> Result<Option<Vec<u8>>, HttpError> {
        let stall = self.limits.stall;
        let result = tokio::time::timeout(stall, self.collect_body_unless_stream()).await;
        result.map_err(|_| HttpError::stall_timeout(stall))?
    }

    async fn collect_body_unless_stream(&mut self) -> Result<Option<Vec<u8>>, HttpError> {
        let mut body = Vec::new();
        let mut is_decided = false;
        while let Some(piece) = self.next_chunk().await? {
            // Leading whitespace is ignored; there may be a lot of it.
            match body.is_empty() {
                true => body.extend_from_slice(piece.trim_ascii_start()),
                false => body.extend_from_slice(&piece),
            }
            if !is_decided && STREAM_PREFIXES.iter().any(|prefix| body.starts_with(prefix)) {
                self.peeked = Some(body.into());
                return Ok(None);
            }
            is_decided = !STREAM_PREFIXES.iter().any(|prefix| prefix.starts_with(&body));
        }
        Ok(Some(body))
    }

    /// Reads the start of the body of an error response, as far as it arrives in time. Errors while
    /// reading are ignored.
    pub(crate) async fn read_error_body(&mut self) -> Vec<u8> {
        let wait = self.limits.stall.min(ERROR_BODY_TIMEOUT);
        let mut body = Vec::new();
        let read_chunks = async {
            while body.len() < ERROR_BODY_BYTES_MAX
                && let Ok(Some(piece)) = self.next_chunk().await
            {
                body.extend_from_slice(&piece);
            }
        };
        // On a timeout the part received so far is used.
        _ = tokio::time::timeout(wait, read_chunks).await;
        body.truncate(ERROR_BODY_BYTES_MAX);
        body
    }

    /// Limits the response body to the given number of bytes, if the current limit is higher.
    pub(crate) fn with_max_body_bytes(mut self, max_bytes: usize) -> Self {
        self.limits.max_bytes = self.limits.max_bytes.min(max_bytes);
        self
    }
}
