//! What several tests of this crate share.

use rustix::process::{Pid, test_kill_process};

/// Returns when there is no such process any more, or only its zombie.
pub(crate) async fn is_gone(pid: i32) {
    let pid = Pid::from_raw(pid).unwrap();
    while test_kill_process(pid).is_ok() {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
        let state = stat
            .ok()
            .and_then(|stat| Some(stat.rsplit_once(") ")?.1.chars().next()));
        if state.flatten() == Some('Z') {
            return;
        }
        tokio::task::yield_now().await;
    }
}
