//! Journal format as a contract: one encoded event of every kind. A change of this snapshot is a
//! change of stored data and needs a new event version.

use std::collections::BTreeMap;

use longhaul_core::event::Event;
use longhaul_core::policy::RunPolicy;
use longhaul_core::policy::effect::InDoubtPolicy;

use super::harness::TestRun;
use super::policies::{ask_rule, keep_open, result_gate, with_money_cap, with_rule};

/// Scripts whose journals together contain every kind that the state machine writes.
const SCRIPTS: &[&str] = &[
    "steer before_next_tool; resteer after_batch; claim; see; \
     call read/pure {\"path\": \"a/b\\u00e9\", \"size\": 1.50} + nonsense/bad; pend t1.1 5; \
     fire; claim; go; ask t1.1; answer {\"name\": \"Ada\"}; claim; go; done t1.1 ok; \
     steer after_batch; unsteer; say Done.",
    "claim; see; call shell/once {\"command\": \"rm x\"}; tick 60; yes run; claim; go; \
     done t1.1 ok; call shell/once {\"command\": \"rm y\"}; revoke; kill t2.1; \
     cancel enough; say Late.",
    "claim; see; call send/once?; crash; claim; go; found t1.1 unknown; surface t1.1 sent; \
     claim; go; steer interrupt; halt Half; err context_overflow; sum 1; err rate_limit 40; \
     fire; claim; go; err server; fire; claim; go; err server; fire; claim; go; err server; \
     fire; claim; go; err server; fire; claim; go",
    "claim; see; call report_blocked/pure {\"reason\": \"no key\"}; pause; claim; go; \
     resume turns 9; claim; go; fire; claim; go; \
     call report_progress/pure {\"percent\": 5, \"message\": \"on it\"}; \
     steer follow_up; err refused",
    "claim; see; raise money 40000; claim; go; call shell/once; yes by cli:anna; \
     cancel; claim; go",
    "claim; see; key held k; call send/once {\"key\": \"k\"}",
];

/// Kinds of events that are not written by the state machine.
const OTHER_KINDS: &[(&str, &str)] = &[
    ("run.overdue", r#"{"active":9000,"soft_timeout":8000}"#),
    ("run.timed_out", r#"{"active":9000,"hard_timeout":8000}"#),
    ("run.forked", r#"{"from":"run_01j0000000e008000j6hb7h6nw","through":7,"kind":"retry"}"#),
    ("tool.progress", r#"{"call":"t1.1","message":"3 of 7"}"#),
    (
        "child.started",
        r#"{"child":"run_01j0000000e008000j6hb7h6nw","agent":"writer","call":"t1.1"}"#,
    ),
    (
        "child.ended",
        r#"{"child":"run_01j0000000e008000j6hb7h6nw","outcome":{"completed":{"text":"Done."}}}"#,
    ),
    (
        "outcome.graded",
        r#"{"round":1,"verdict":"not_satisfied","note":"Too short.","child":"run_01j0000000e008000j6hb7h6nw"}"#,
    ),
    (
        "budget.settled",
        r#"{"turn":1,"held":{"micro_usd":5,"tokens":7},"charged":{"micro_usd":5,"tokens":7}}"#,
    ),
    (
        "workspace.saved",
        r#"{"turn":3,"result":"snapshot","commit":"c0ffee","pack":{"hash":"2413fb3709b05939f04cf2e92f7d0897fc2596f9ad0b8a9ea855c7bfebaae892","size":4},"changes":[{"path":"a.rs","change":"change","lines_added":1,"lines_removed":0}],"more_files":2}"#,
    ),
    ("chain.step_started", r#"{"step":1,"agent":"review","run":"run_01j0000000e008000j6hb7h6nw"}"#),
];

const SANDBOX: &str = r#"{"sandbox":"sbx_01j0000000e008000j6hb7h6nw","provider":"local","handle":"lh-7","host":"box","isolation":"bubblewrap","idle_stop":120000,"keep":86400000,"earlier_epochs":2,"reason":"its run has ended"}"#;
const SANDBOX_COMMAND: &str =
    r#"{"sandbox":"sbx_01j0000000e008000j6hb7h6nw","command":["ls"],"by":"cli:ada"}"#;

fn policies() -> Vec<RunPolicy> {
    let rule = longhaul_core::policy::gate::GateRule {
        remind: Some(longhaul_core::time::Millis::from_secs(60)),
        ..ask_rule()
    };
    let two = longhaul_core::policy::gate::GateRule {
        approvers: longhaul_core::policy::gate::ApprovalRequirement {
            count: 2,
            not_submitter: true,
        },
        ..ask_rule()
    };
    let low_budget =
        RunPolicy { rules: vec![two], in_doubt: Some(InDoubtPolicy::Ask), ..with_money_cap(1) };
    let open = RunPolicy {
        result_gate: result_gate(longhaul_core::policy::gate::GateTimeoutAction::Approve)
            .result_gate,
        ..keep_open()
    };
    vec![keep_open(), with_rule(rule), RunPolicy::default(), open, low_budget, RunPolicy::default()]
}

#[test]
fn every_event_kind_has_a_stable_format() {
    let mut forms: BTreeMap<&str, String> = BTreeMap::new();
    for (policy, script) in policies().into_iter().zip(SCRIPTS) {
        let mut test_run = TestRun::new(policy);
        for line in script.split("; ") {
            test_run.play(line);
        }
        test_run.run_to_end();
        for entry in &test_run.entries {
            let form = || entry.event.encode().unwrap();
            forms.entry(entry.event.kind()).or_insert_with(form);
        }
    }
    let sandboxes = Event::KINDS.iter().map(|(kind, _, _)| *kind);
    let sandboxes = sandboxes.filter(|kind| kind.starts_with("sandbox."));
    let sandboxes = sandboxes.map(|kind| match kind {
        "sandbox.command_run" => (kind, SANDBOX_COMMAND),
        _ => (kind, SANDBOX),
    });
    let other_kinds = OTHER_KINDS.iter().copied().chain(sandboxes);
    for (kind, form) in other_kinds {
        let event = Event::decode(kind, 1, form).unwrap();
        assert_eq!(event.encode().unwrap(), form, "{kind}");
        let before = forms.insert(kind, form.to_owned());
        assert_eq!(before, None, "the state machine writes {kind} itself");
    }
    let mut text = String::new();
    for (kind, version, format) in Event::KINDS {
        let form = forms.get(kind).unwrap_or_else(|| panic!("no example of {kind}"));
        text += &format!("{kind} v{version} format {format}\n  {form}\n");
    }
    insta::assert_snapshot!("events", text);
}
