//! The mock's example in the guide works as shown.

use std::path::Path;

use super::{project, start};

/// Returns the text between two markers.
fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let (_, after) = text.split_once(from).unwrap_or_else(|| panic!("no {from}"));
    let (inside, _) = after.split_once(to).unwrap_or_else(|| panic!("no {to}"));
    inside
}

#[test]
fn the_request_of_the_guide_gets_the_documented_response() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let guide = std::fs::read_to_string(root.join("docs/guide.md")).unwrap();
    let project = project();
    project.write("scripts/tidy.yaml", between(&guide, "```yaml\n", "```"));
    let section = between(&guide, "## Trying it without a key", "```toml");
    let line = between(section, "curl http://127.0.0.1:4190", " -d '");
    let body = between(section, " -d '", "'\n");
    let served = start(&project, &[]);
    let answer = served.request(&format!("POST {line}"), &[], body).json();
    let message = &answer["choices"][0]["message"];
    let content = between(section, "The answer says `", "`");
    let calls = between(section, "and calls `", "`");
    assert_eq!(message["content"], content);
    assert_eq!(message["tool_calls"][0]["function"]["name"], calls);
}
