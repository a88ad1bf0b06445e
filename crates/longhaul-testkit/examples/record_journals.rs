//! Records the journals that every later build must be able to replay: one file per scenario,
//! under `tests/journals/<format>/`. Existing files are never overwritten.

use std::path::Path;

use futures_util::FutureExt as _;
use longhaul_core::event::EVENT_FORMAT;
use longhaul_testkit::clock::SimClock;
use longhaul_testkit::conformance::harness::Harness;
use longhaul_testkit::mem_store::MemStore;
use longhaul_testkit::sim::SimError;
use longhaul_testkit::sim::journals::to_lines;
use longhaul_testkit::sim::kill::{Crash, run_scenario};
use longhaul_testkit::sim::scenario::recorded_scenarios;

fn main() -> Result<(), SimError> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/journals")
        .join(EVENT_FORMAT.to_string());
    std::fs::create_dir_all(&folder)?;
    for scenario in recorded_scenarios() {
        // One run without a crash, and one whose driver crashes in the middle.
        for (suffix, crash) in [("", Crash::None), ("_killed", Crash::AfterSteps(9))] {
            let path = folder.join(format!("{}{suffix}.jsonl", scenario.name));
            if path.exists() {
                continue;
            }
            let clock = SimClock::new();
            let harness = Harness::new(MemStore::new(clock.clone()), clock);
            let result = run_scenario(&harness, &scenario, crash)
                .now_or_never()
                .ok_or("the in-memory store never waits")??;
            std::fs::write(&path, to_lines(&result.journal)?)?;
        }
    }
    Ok(())
}
