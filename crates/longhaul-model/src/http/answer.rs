//! An answer as it comes in, piece by piece.
//!
//! Never: longer than the limit, and never waited for without an end.

use std::time::Duration;

use bytes::Bytes;
use reqwest::Response;
use reqwest::header::{CONTENT_TYPE, HeaderMap};

use crate::http::limits::Limits;
use crate::http::trouble::Trouble;

/// So much of an answer that says no is read; the rest is dropped with its connection.
const NO_BYTES_MAX: usize = 64 * 1024;

/// So long an answer that says no is read in all: nobody waits for a no that drips.
const NO_WAIT_MAX: Duration = Duration::from_secs(10);

/// What calls itself so is no stream of events, unless it looks like one.
const NO_STREAMS: &[&str] = &["application/json", "text/html"];

/// How a stream of events begins, which no JSON and no page does.
const STREAMS_BEGIN: &[&[u8]] = &[b"data:", b"event:", b"id:", b"retry:", b":"];

/// What a server answers.
#[derive(Debug)]
pub(crate) struct Answer {
    response: Response,
    limits: Limits,
    read: usize,
    /// What was read to see what it is, and has yet to be heard.
    begun: Option<Bytes>,
}

impl Answer {
    pub(super) const fn new(response: Response, limits: Limits) -> Self {
        Self {
            response,
            limits,
            read: 0,
            begun: None,
        }
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
        !NO_STREAMS.iter().any(|kind| said.starts_with(kind))
    }

    /// The next piece; none: it is over.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Trouble> {
        if let Some(begun) = self.begun.take() {
            return Ok(Some(begun));
        }
        let (wait, late) = match self.read {
            0 => (
                self.limits.first_byte,
                Trouble::NoAnswer(self.limits.first_byte),
            ),
            _ => (self.limits.idle, Trouble::Silence(self.limits.idle)),
        };
        let next = tokio::time::timeout(wait, self.response.chunk()).await;
        let piece = next.map_err(|_| late)?.map_err(Trouble::midway)?;
        self.read += piece.as_ref().map_or(0, Bytes::len);
        match self.read > self.limits.bytes {
            true => Err(Trouble::TooLong(self.limits.bytes)),
            false => Ok(piece),
        }
    }

    /// All of it, in the time that a stream has for something of the reply. None:
    /// it is a stream after all, whatever its head says, and is heard with `next`.
    pub(crate) async fn whole(&mut self) -> Result<Option<Vec<u8>>, Trouble> {
        let stall = self.limits.stall;
        let all = tokio::time::timeout(stall, self.gather()).await;
        all.map_err(|_| Trouble::Stall(stall))?
    }

    async fn gather(&mut self) -> Result<Option<Vec<u8>>, Trouble> {
        let mut body = Vec::new();
        let mut is_told = false;
        while let Some(piece) = self.next().await? {
            // Blanks before anything else mean nothing, and may be many.
            match body.is_empty() {
                true => body.extend_from_slice(piece.trim_ascii_start()),
                false => body.extend_from_slice(&piece),
            }
            if !is_told && STREAMS_BEGIN.iter().any(|begin| body.starts_with(begin)) {
                self.begun = Some(body.into());
                return Ok(None);
            }
            is_told = !STREAMS_BEGIN.iter().any(|begin| begin.starts_with(&body));
        }
        Ok(Some(body))
    }

    /// The beginning of an answer that says no, as far as it comes soon: what is
    /// missing of it is no trouble of its own.
    pub(crate) async fn beginning(&mut self) -> Vec<u8> {
        let wait = self.limits.stall.min(NO_WAIT_MAX);
        let mut body = Vec::new();
        let some = async {
            while body.len() < NO_BYTES_MAX
                && let Ok(Some(piece)) = self.next().await
            {
                body.extend_from_slice(&piece);
            }
        };
        // What has come when the time is up is what was said.
        _ = tokio::time::timeout(wait, some).await;
        body.truncate(NO_BYTES_MAX);
        body
    }

    /// The same answer, of which so much is read at most.
    pub(crate) fn at_most(mut self, bytes: usize) -> Self {
        self.limits.bytes = self.limits.bytes.min(bytes);
        self
    }
}
