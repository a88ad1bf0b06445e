//! The provider's own description of its requests as the judge of ours.

use std::sync::OnceLock;

use serde_json::json;

use crate::suite::spec::Judge;

fn judge() -> &'static Judge {
    static JUDGE: OnceLock<Judge> = OnceLock::new();
    JUDGE.get_or_init(|| Judge::new("anthropic.trimmed.json", "CreateMessageParams"))
}

/// Panics with what is wrong with a request.
pub(crate) fn check(body: &str) {
    judge().check(body);
}

#[test]
fn the_judge_finds_a_fault_where_there_is_one() {
    let bad = json!({"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": 5}]});
    assert_ne!(judge().passes(&bad), Some(true));
}
