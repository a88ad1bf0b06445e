//! The cryptography behind secure connections, chosen once in a process.
//!
//! Never: another than the one this house ships with.

use std::sync::Once;

/// Sees to it that there is one.
pub(crate) fn ensure_provider() {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        // An error says that there is one already, which is as good.
        _ = rustls::crypto::ring::default_provider().install_default();
    });
}
