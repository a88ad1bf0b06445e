//! Limits on requests, connections and streams that apply to every caller.

use std::time::Duration;

/// Maximum size of a request body in bytes.
pub(crate) const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Maximum nesting depth of the JSON in a request.
pub(crate) const JSON_DEPTH_MAX: usize = 64;

/// Maximum size of a query string in bytes, and maximum number of its parameters.
pub(crate) const QUERY_BYTES_MAX: usize = 8 * 1024;
pub(crate) const QUERY_PAIRS_MAX: usize = 64;

/// Maximum number of headers, and maximum size in bytes of the request head including the request
/// line.
pub(crate) const HEADERS_MAX: usize = 64;
pub(crate) const HEAD_BYTES_MAX: usize = 32 * 1024;

/// Timeout for reading a request head, including the idle time before it on a kept-alive
/// connection. For the first request of a connection, `FIRST_HEAD_TIMEOUT` applies too.
pub(crate) const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Timeout for reading a request body.
pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(20);

/// Timeout for a handler to begin its response. It does not limit the length of a stream.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Timeout for writing to a client that does not read the response.
pub(crate) const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Time after which a new connection is closed if no complete request head has arrived.
pub(crate) const FIRST_HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of open connections. Half of the process's file limit applies if that is
/// lower.
pub(crate) const CONNECTIONS_MAX: usize = 8_192;

/// Maximum number of connections from one address that have not shown a valid key within
/// `ANONYMOUS_GRACE`.
pub(crate) const ANONYMOUS_PER_ADDRESS_MAX: usize = 256;

/// Time that a connection has to show a valid key before it counts against the limit of its
/// address. A proxy opens the connections of many clients from one address.
pub(crate) const ANONYMOUS_GRACE: Duration = Duration::from_secs(1);

/// Time that a connection has to show a valid key before it may be closed for a new connection at
/// a limit of the server. Short, because the new connection waits meanwhile.
pub(crate) const ANONYMOUS_GRACE_WHEN_FULL: Duration = Duration::from_millis(250);

/// Maximum number of requests that read a run's journal at the same time in order to show the run.
pub(crate) const JOURNAL_READS_MAX: usize = 4;

/// Maximum number of run transcripts in memory at the same time.
pub(crate) const TRANSCRIPTS_MAX: usize = 2;

/// Maximum time that a request waits for a permit to read a run's journal or transcript.
pub(crate) const READ_PERMIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of open event streams per caller.
pub(crate) const STREAMS_MAX: u32 = 2_000;

/// Time that open connections have to finish during shutdown before they are closed.
pub(crate) const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// Maximum number of requests per second from one address without a valid key.
pub(crate) const ANONYMOUS_RATE: u32 = 50;

/// Maximum number of credential lookups in the store per second for an address that has exceeded
/// `ANONYMOUS_RATE`. A request from such an address may still have a valid link or session.
pub(crate) const LOOKUP_RATE: u32 = 200;

/// Maximum number of event streams, over all runs, that may read old events at the same time.
pub(crate) const CATCHING_UP_STREAMS_MAX: usize = 2;
