//! The provider's own description of its requests as the judge of ours.
//!
//! It is read from `LONGHAUL_SPECS`, or from where it lies beside the house;
//! where it is not, the test says so and goes on.

use std::path::PathBuf;
use std::sync::OnceLock;

use jsonschema::Validator;
use serde_json::{Value, json};

const FILE: &str = "anthropic.trimmed.json";

/// Panics with what is wrong with a request.
pub(crate) fn check(body: &str) {
    static JUDGE: OnceLock<Option<Validator>> = OnceLock::new();
    let request: Value = serde_json::from_str(body).unwrap();
    let Some(judge) = JUDGE.get_or_init(judge) else {
        return;
    };
    let faults: Vec<String> = judge
        .iter_errors(&request)
        .map(|fault| format!("{}: {fault}", fault.instance_path()))
        .collect();
    assert!(faults.is_empty(), "{faults:#?}\n{body}");
}

#[expect(clippy::print_stdout, reason = "a test that does less must say so")]
fn judge() -> Option<Validator> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/specs");
    let folder = std::env::var_os("LONGHAUL_SPECS").map_or_else(|| beside.into(), PathBuf::from);
    let Ok(text) = std::fs::read_to_string(folder.join(FILE)) else {
        println!(
            "no {FILE} in {}: requests are not judged by it",
            folder.display()
        );
        return None;
    };
    let mut spec: Value = serde_json::from_str(&text).unwrap();
    let schema = json!({
        "$ref": "#/components/schemas/CreateMessageParams",
        "components": spec["components"].take(),
    });
    Some(jsonschema::validator_for(&schema).unwrap())
}

#[test]
fn the_judge_finds_a_fault_where_there_is_one() {
    let Some(judge) = judge() else { return };
    let bad = json!({"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": 5}]});
    assert!(!judge.is_valid(&bad));
}
