//! Records the journals that every later build must still fold: one file for
//! each scenario, under `tests/journals/<format>/`.
//!
//! Never: rewrites a file. What a release recorded stays as it is.

use std::path::Path;

use futures_util::FutureExt as _;
use longhaul_core::event::EVENT_FORMAT;
use longhaul_testkit::clock::SimClock;
use longhaul_testkit::conformance::harness::Harness;
use longhaul_testkit::mem_store::MemStore;
use longhaul_testkit::sim::Fault;
use longhaul_testkit::sim::journals::to_lines;
use longhaul_testkit::sim::kill::{Death, play};
use longhaul_testkit::sim::scenario::named;

fn main() -> Result<(), Fault> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/journals")
        .join(EVENT_FORMAT.to_string());
    std::fs::create_dir_all(&folder)?;
    for scenario in named() {
        // One life in peace, and one whose driver dies in the middle.
        for (suffix, death) in [("", Death::None), ("_killed", Death::AfterSteps(9))] {
            let path = folder.join(format!("{}{suffix}.jsonl", scenario.name));
            if path.exists() {
                continue;
            }
            let clock = SimClock::new();
            let harness = Harness::new(MemStore::new(clock.clone()), clock);
            let ended = play(&harness, &scenario, death)
                .now_or_never()
                .ok_or("the store in memory never waits")??;
            std::fs::write(&path, to_lines(&ended.journal)?)?;
        }
    }
    Ok(())
}
