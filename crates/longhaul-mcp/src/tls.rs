//! Setup of the TLS crypto provider.

/// Installs a TLS crypto provider for this process if none is installed yet.
pub(crate) fn ensure_crypto_provider() {
    // An error means that another part of this process has installed a provider.
    _ = rustls::crypto::ring::default_provider().install_default();
}
