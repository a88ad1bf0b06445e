//! Checks of `longhaul doctor` about this machine: the server, the clock and the disk.

use std::path::Path;

use longhaul_api::operations::VERSION;
use longhaul_api::query::RunsQuery;
use longhaul_core::time::{Clock as _, Millis, Timestamp};
use longhaul_engine::clock::SystemClock;
use longhaul_project::config::settings::Config;
use rustix::fs::{Access, access, statvfs};

use crate::client::Client;
use crate::client::connect::{find_configured_or_local_server, with_client_if_any};
use crate::doctor::finding::{Finding, FindingStatus};
use crate::format::format_duration;
use crate::runtime;

/// Free space of the disk, in MiB, below which a store soon can't be written.
const FREE_MIB_MIN: u64 = 100;
/// Free space of the disk, in MiB, below which a warning is printed.
const FREE_MIB_LOW: u64 = 1_024;

/// Difference between clocks that is not reported.
const CLOCK_TOLERANCE: Millis = Millis::from_secs(5);

/// Checks the server that `LONGHAUL_URL` names or that drives this folder's store.
pub(super) fn check_server() -> Finding {
    let own = env!("CARGO_PKG_VERSION");
    let ask = || {
        let Some(server) = find_configured_or_local_server()? else {
            return Ok(None);
        };
        let client = Client::for_server(server.client, server.store_file);
        runtime::block_on(async { client.send(VERSION.at(())).await }).map(Some)
    };
    let (status, message) = match ask() {
        Ok(None) => {
            let message = "no server runs for this folder: start one with `longhaul serve` if \
                           programs or browsers need it";
            (FindingStatus::Ok, message.to_owned())
        }
        Ok(Some(server)) if server.version == own => {
            (FindingStatus::Ok, format!("responds, version {own}"))
        }
        Ok(Some(server)) => {
            let message = format!(
                "responds with version {}, but this program has version {own}: restart the server",
                server.version
            );
            (FindingStatus::Warning, message)
        }
        Err(error) => (FindingStatus::Problem, crate::error::message_with_causes(&error)),
    };
    Finding::new("server", status, message)
}

/// Checks that the clock is not behind the newest run of the store.
pub(super) fn check_clock() -> Finding {
    let newest = with_client_if_any(async |client| {
        let rows = client.list_runs(RunsQuery::default(), 1).await?;
        Ok(rows.first().map(|row| row.created_at))
    });
    let now = SystemClock.now();
    match newest {
        Ok(newest) => clock_finding(now, newest.flatten()),
        Err(error) => {
            let message = crate::error::message_with_causes(&error);
            Finding::new("clock", FindingStatus::Problem, message)
        }
    }
}

fn clock_finding(now: Timestamp, newest_run: Option<Timestamp>) -> Finding {
    let behind = newest_run.map_or(Millis(0), |newest| newest.duration_since(now));
    if behind > CLOCK_TOLERANCE {
        let message = format!(
            "is {} behind the newest run of the store, so timers and deadlines come late: set it, \
             for example with `timedatectl set-ntp true`",
            format_duration(behind)
        );
        return Finding::new("clock", FindingStatus::Problem, message);
    }
    Finding::new("clock", FindingStatus::Ok, format!("{now}"))
}

/// Checks that the data folder, or else the project's folder, can be written and has space.
pub(super) fn check_disk(config: &Config) -> Finding {
    let data = config.data_folder();
    let folder = [data.as_path(), config.root.as_path()].into_iter().find(|path| path.exists());
    let folder = folder.unwrap_or(Path::new("."));
    let shown = folder.strip_prefix(&config.root).unwrap_or(folder);
    let shown = if shown.as_os_str().is_empty() { Path::new(".") } else { shown };
    let shown = shown.display();
    let other = "or use another folder: `LONGHAUL_DATA=/other/folder longhaul ...`";
    let problem = |message: String| Finding::new("disk", FindingStatus::Problem, message);
    if let Err(error) = access(folder, Access::WRITE_OK) {
        return problem(format!(
            "`{shown}` can't be written: {error}. Check it with `ls -ld {shown}`, {other}"
        ));
    }
    match statvfs(folder) {
        Err(error) => problem(format!("the free space of `{shown}` is unknown: {error}")),
        Ok(disk) => disk_finding(disk.f_bavail.saturating_mul(disk.f_frsize) >> 20, other),
    }
}

fn disk_finding(free_mib: u64, other: &str) -> Finding {
    let free = match free_mib {
        0..1_024 => format!("{free_mib} MiB free"),
        _ => format!("{} GiB free", free_mib / 1_024),
    };
    let advice = format!("{free}: delete old runs and files, {other}");
    match free_mib {
        0..FREE_MIB_MIN => Finding::new("disk", FindingStatus::Problem, advice),
        FREE_MIB_MIN..FREE_MIB_LOW => Finding::new("disk", FindingStatus::Warning, advice),
        _ => Finding::new("disk", FindingStatus::Ok, free),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_behind_the_store_is_a_problem() {
        let now = Timestamp::from_micros(1_000_000_000);
        for (newest, expected) in [
            (None, FindingStatus::Ok),
            (Some(Timestamp::default()), FindingStatus::Ok),
            (Some(now.plus(CLOCK_TOLERANCE)), FindingStatus::Ok),
            (Some(now.plus(Millis::from_secs(3_600))), FindingStatus::Problem),
        ] {
            assert_eq!(clock_finding(now, newest).status, expected, "{newest:?}");
        }
        let late = clock_finding(now, Some(now.plus(Millis::from_secs(3_600))));
        assert!(late.message.starts_with("is 1h 00m behind the newest run"), "{late:?}");
    }

    #[test]
    fn little_free_space_is_a_problem() {
        for (mib, status, text) in [
            (0, FindingStatus::Problem, "0 MiB free: delete"),
            (99, FindingStatus::Problem, "99 MiB"),
            (100, FindingStatus::Warning, "100 MiB"),
            (1_024, FindingStatus::Ok, "1 GiB free"),
            (90_000, FindingStatus::Ok, "87 GiB free"),
        ] {
            let finding = disk_finding(mib, "or not");
            assert_eq!(finding.status, status, "{mib}");
            assert!(finding.message.starts_with(text), "{finding:?}");
        }
    }
}
