//! The mock's example in the guide works as shown.

use std::path::Path;

use super::{project, start};

/// Returns the text between two markers.
fn text_between<'a>(text: &'a str, start_marker: &str, end_marker: &str) -> &'a str {
    let (_, after) = text.split_once(start_marker).unwrap_or_else(|| panic!("no {start_marker}"));
    let (inside, _) = after.split_once(end_marker).unwrap_or_else(|| panic!("no {end_marker}"));
    inside
}

#[test]
fn the_request_of_the_guide_gets_the_documented_response() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let guide = std::fs::read_to_string(root.join("docs/guide.md")).unwrap();
    let project = project();
    project.write("scripts/tidy.yaml", text_between(&guide, "```yaml\n", "```"));
    let section = text_between(&guide, "## Trying it without a key", "```toml");
    let line = text_between(section, "curl http://127.0.0.1:4191", " -d '");
    let body = text_between(section, " -d '", "'\n");
    let server = start(&project, &[]);
    let answer = server.request(&format!("POST {line}"), &[], body).json();
    let message = &answer["choices"][0]["message"];
    let content = text_between(section, "The answer says `", "`");
    let calls = text_between(section, "and calls `", "`");
    assert_eq!(message["content"], content);
    assert_eq!(message["tool_calls"][0]["function"]["name"], calls);
}
