//! Timeouts and size limits of an exchange. A stream has no total timeout: it may take as long as
//! the reply makes progress.

use std::time::Duration;

/// Timeouts and size limits of one exchange with a provider's server.
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
