//! Hears when whoever started this process is gone.
//!
//! Never: reads what is written there.

/// Returns when stdin is closed, if that is to be heeded.
pub(crate) async fn parent_gone(heeded: bool) {
    if !heeded {
        return std::future::pending().await;
    }
    let (gone, heard) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        drop(gone);
    });
    _ = heard.await;
}
