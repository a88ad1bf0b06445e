//! An answer as it comes in, piece by piece.
//!
//! Never: longer than the limit, and never waited for without an end.

use std::time::Duration;

use bytes::Bytes;
use reqwest::Response;
use reqwest::header::{CONTENT_TYPE, HeaderMap};

use crate::http::error::HttpError;
use crate::http::limits::Limits;

/// So much of an answer that says no is read; the rest is dropped with its connection.
const ERROR_BODY_BYTES_MAX: usize = 64 * 1024;

/// So long an answer that says no is read in all: nobody waits for a no that drips.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// What calls itself so is no stream of events, unless it looks like one.
const NON_STREAM_TYPES: &[&str] = &["application/json", "text/html"];

/// How a stream of events begins, which no JSON and no page does.
const STREAM_PREFIXES: &[&[u8]] = &[b"data:", b"event:", b"id:", b"retry:", b":"];

/// What a server answers.
#[derive(Debug)]
pub(crate) struct BoundedResponse {
    response: Response,
    limits: Limits,
    bytes_read: usize,
    /// What was read to see what it is, and has yet to be heard.
    peeked: Option<Bytes>,
}

impl BoundedResponse {
    pub(super) const fn new(response: Response, limits: Limits) -> Self {
        Self { response, limits, bytes_read: 0, peeked: None }
    }

    pub(crate) fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// Whether it may be a stream of events. A server that says nothing, or
    /// something odd, is taken at the word that was asked for.
    pub(crate) fn is_stream(&self) -> bool {
        let said = self.headers().get(CONTENT_TYPE);
        let said = said.map_or(&b""[..], |said| said.as_bytes());
        let said = String::from_utf8_lossy(said).to_ascii_lowercase();
        !NON_STREAM_TYPES.iter().any(|kind| said.starts_with(kind))
    }

    /// The next piece; none: it is over.
    pub(crate) async fn next_chunk(&mut self) -> Result<Option<Bytes>, HttpError> {
        if let Some(begun) = self.peeked.take() {
            return Ok(Some(begun));
        }
        let (wait, late) = match self.bytes_read {
            0 => (self.limits.first_byte, HttpError::ResponseTimeout(self.limits.first_byte)),
            _ => (self.limits.idle, HttpError::IdleTimeout(self.limits.idle)),
        };
        let next = tokio::time::timeout(wait, self.response.chunk()).await;
        let piece = next.map_err(|_| late)?.map_err(HttpError::from_body_error)?;
        self.bytes_read += piece.as_ref().map_or(0, Bytes::len);
        match self.bytes_read > self.limits.max_bytes {
            true => Err(HttpError::ResponseTooLarge(self.limits.max_bytes)),
            false => Ok(piece),
        }
    }

    /// All of it, in the time that a stream has for something of the reply. None:
    /// it is a stream after all, whatever its head says, and is heard with `next`.
    pub(crate) async fn read_all(&mut self) -> Result<Option<Vec<u8>>, HttpError> {
        let stall = self.limits.stall;
        let all = tokio::time::timeout(stall, self.read_body()).await;
        all.map_err(|_| HttpError::StallTimeout(stall))?
    }

    async fn read_body(&mut self) -> Result<Option<Vec<u8>>, HttpError> {
        let mut body = Vec::new();
        let mut is_told = false;
        while let Some(piece) = self.next_chunk().await? {
            // Blanks before anything else mean nothing, and may be many.
            match body.is_empty() {
                true => body.extend_from_slice(piece.trim_ascii_start()),
                false => body.extend_from_slice(&piece),
            }
            if !is_told && STREAM_PREFIXES.iter().any(|begin| body.starts_with(begin)) {
                self.peeked = Some(body.into());
                return Ok(None);
            }
            is_told = !STREAM_PREFIXES.iter().any(|begin| begin.starts_with(&body));
        }
        Ok(Some(body))
    }

    /// The beginning of an answer that says no, as far as it comes soon: what is
    /// missing of it is no trouble of its own.
    pub(crate) async fn read_error_body(&mut self) -> Vec<u8> {
        let wait = self.limits.stall.min(ERROR_BODY_TIMEOUT);
        let mut body = Vec::new();
        let some = async {
            while body.len() < ERROR_BODY_BYTES_MAX
                && let Ok(Some(piece)) = self.next_chunk().await
            {
                body.extend_from_slice(&piece);
            }
        };
        // What has come when the time is up is what was said.
        _ = tokio::time::timeout(wait, some).await;
        body.truncate(ERROR_BODY_BYTES_MAX);
        body
    }

    /// The same answer, of which so much is read at most.
    pub(crate) fn with_max_bytes(mut self, bytes: usize) -> Self {
        self.limits.max_bytes = self.limits.max_bytes.min(bytes);
        self
    }
}
