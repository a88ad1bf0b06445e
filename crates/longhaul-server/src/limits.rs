//! What bounds a caller, in one list.
//!
//! Never: a bound that is hit in silence. Each has its words in a problem.

use std::time::Duration;

/// The longest body of a request.
pub(crate) const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// So deep may JSON be nested.
pub(crate) const DEPTH_MAX: usize = 64;

/// The longest query, and so many parts of it.
pub(crate) const QUERY_BYTES_MAX: usize = 8 * 1024;
pub(crate) const QUERY_PAIRS_MAX: usize = 64;

/// So many headers, and so many bytes of them with the request's first line.
pub(crate) const HEADERS_MAX: usize = 64;
pub(crate) const HEAD_BYTES_MAX: usize = 32 * 1024;

/// A head must have come after this time, on a new connection or a kept one.
pub(crate) const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// A body must have come after this time.
pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(20);

/// A request that is no stream must be answered after this time.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// A client that reads nothing for so long is let go of.
pub(crate) const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// The first head of a connection must have come after this time.
pub(crate) const FIRST_HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum of open connections; half of the process's file limit if that is less.
pub(crate) const CONNECTIONS_MAX: usize = 8_192;

/// Maximum of connections of one address that have shown no valid key.
pub(crate) const ANONYMOUS_PER_ADDRESS_MAX: usize = 256;

/// Maximum of views that read the journal of a run at the same time.
pub(crate) const FOLDS_MAX: usize = 4;

/// Maximum of transcripts in memory at the same time.
pub(crate) const TRANSCRIPTS_MAX: usize = 2;

/// A view that can't be begun after this time is refused.
pub(crate) const FOLD_PERMIT_TIMEOUT: Duration = Duration::from_secs(10);

/// So many streams at once for one caller.
pub(crate) const STREAMS_MAX: u32 = 2_000;

/// When a server stops, connections have so long to end by themselves.
pub(crate) const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// The longest idempotency key.
pub(crate) const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;

/// Callers without a key that counts: so many requests a second from one address.
pub(crate) const ANONYMOUS_RATE: u32 = 50;

/// Maximum of looks into the store each second for one address beyond that rate, which
/// may show a valid link or session all the same.
pub(crate) const LOOKUP_RATE: u32 = 200;

/// So many streams of all runs read at once what was written before.
pub(crate) const CATCHING_UP_MAX: usize = 2;
