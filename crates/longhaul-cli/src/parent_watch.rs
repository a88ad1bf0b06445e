//! Detects the end of the parent process, at which stdin reaches EOF.

/// Returns when stdin reaches EOF, because the parent process is gone. Never returns if
/// watching is disabled.
pub(crate) async fn wait_for_parent_exit(enabled: bool) {
    if !enabled {
        return std::future::pending().await;
    }
    let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        drop(sender);
    });
    _ = receiver.await;
}
