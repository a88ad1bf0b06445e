//! The sandbox of a run: when it is opened, waited for, stopped, lost and handed over.

use longhaul_core::change::{RowChange, SandboxState};
use longhaul_core::chain::ChainStepCondition;
use longhaul_core::event::Event;
use longhaul_core::event::environment::SandboxEvent;
use longhaul_core::id::SandboxId;
use longhaul_core::policy::gate::GateTimeoutAction;
use longhaul_core::task::InheritedSandbox;
use longhaul_core::time::Timestamp;
use longhaul_run::state::sandbox::RunSandbox;

use super::chains::{pair, run_in_chain};
use super::harness::TestRun;
use super::harness::script::{check, check_in};
use super::policies::{plain, result_gate, with_caps};

/// A run whose sandbox runs, with a command in it.
const OPENED: &str = r#"
    claim                => run.claimed | running
    see                  => run.prepared turn.started
    call shell/once@box  => turn.completed
    box open             => sandbox.creating
    box runs             => sandbox.running tool.started(t1.1)
"#;

fn check_opened(script: &str) -> TestRun {
    check(plain(), &format!("{OPENED}{script}"))
}

#[test]
fn the_sandbox_is_created_before_the_first_call_that_needs_it() {
    check(
        plain(),
        r#"
        claim                           => run.claimed | running
        see                             => run.prepared turn.started
        call read/pure                  => turn.completed tool.started(t1.1)
        ? box                           => none
        done t1.1 ok                    => tool.completed(t1.1) turn.started
        call shell/once@box + read/pure => turn.completed tool.started(t2.2)
        done t2.2 ok                    => tool.completed(t2.2)
        ? step                          => opensandbox
        go                              =>
        box open                        => sandbox.creating
        ? box                           => creating, with slot
        ? step                          => opensandbox
        box runs                        => sandbox.running tool.started(t2.1)
        done t2.1 ok                    => tool.completed(t2.1) turn.started
        call shell/once@box             => turn.completed tool.started(t3.1)
        done t3.1 ok                    => tool.completed(t3.1) turn.started
        say Done.                       => turn.completed run.completed(Done.) | completed
        ? box                           => running, with slot, idle, of ended run
        idle stopping                   => stopping
        idle stopped                    => stopped
        ? box                           => stopped, idle, of ended run
        idle deleted                    => deleted
    "#,
    );
}
