//! The cryptography behind secure connections.

/// Installs the crypto provider of this process if there is none yet.
pub(crate) fn ensure_provider() {
    // An error says that another part of this process has installed one.
    _ = rustls::crypto::ring::default_provider().install_default();
}
