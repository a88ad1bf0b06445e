//! Setup of the TLS crypto provider, once per process.

use std::sync::Once;

/// Installs a TLS crypto provider for this process if none is installed yet.
pub fn ensure_crypto_provider() {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        // An error means that a provider is already installed, which is fine.
        _ = rustls::crypto::ring::default_provider().install_default();
    });
}
