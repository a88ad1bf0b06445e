//! `read_skill` on real directories: results and rejections.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;

use longhaul_core::id::{CallId, Epoch, RunId};
use longhaul_core::message::Part;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{Tool, ToolContext};
use longhaul_tool::read_skill_tool;
use serde_json::{Value, json};
use tempfile::TempDir;

struct Fixture {
    dir: TempDir,
    tool: Arc<dyn Tool>,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("work");
        fs::create_dir_all(&root).unwrap();
        fs::write(dir.path().join("secret"), "the secret").unwrap();
        let protected = vec![root.join("skills/style/kept")];
        let tool = read_skill_tool(&root, &["skills", ".claude/skills"], protected);
        Self { tool: tool.unwrap(), dir }
    }

    fn write_file(&self, relative_path: &str, content: impl AsRef<[u8]>) {
        let file = self.dir.path().join("work").join(relative_path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
    }

    fn link(&self, target: &str, relative_path: &str) {
        symlink(target, self.dir.path().join("work").join(relative_path)).unwrap();
    }

    async fn call(&self, input: Value) -> String {
        let skills = ["style", "many", "deep", "other", "none"];
        self.call_with(&skills, input).await
    }

    /// Calls the tool for an agent whose file lists these skills.
    async fn call_with(&self, skills: &[&str], input: Value) -> String {
        let call = CallId { turn: 1, index: 1 };
        let ctx = ToolContext {
            skills: skills.iter().map(|&name| name.to_owned()).collect(),
            ..ToolContext::new(RunId::from_bits(7), call, Epoch(1))
        };
        match self.tool.call(input, &ctx).await {
            Ok(output) => match output.content.as_slice() {
                [Part::Text(text)] => text.to_string(),
                other => panic!("{other:?}"),
            },
            Err(failure) => failure.into_message(),
        }
    }

    async fn check(&self, skill: &str, path: &str, expected: &str) {
        let output = self.call(json!({ "skill": skill, "path": path })).await;
        assert!(output.contains(expected), "{skill} {path}: {output}");
        assert!(!output.contains("the secret"), "{output}");
    }
}

const STYLE_SKILL: &str = "---\nname: style\ndescription: How.\n---\n\n# Style\n\nShort names.\n";

#[tokio::test]
async fn a_skill_is_read_with_the_list_of_its_files() {
    let fixture = Fixture::new();
    fixture.write_file("skills/style/SKILL.md", STYLE_SKILL);
    let output = fixture.call(json!({ "skill": "style" })).await;
    assert_eq!(output, "# Style\n\nShort names.");
    fixture.write_file("skills/style/references/names.md", "Names are short.");
    fixture.write_file("skills/style/check.sh", "true");
    fixture.write_file("skills/style/.hidden", "x");
    fixture.write_file("skills/style/.env", "KEY=the secret");
    let expected = "# Style\n\nShort names.\n\n[Files of this skill, to be read with `path`:]\ncheck.sh\nreferences/names.md";
    for input in [
        json!({ "skill": "style" }),
        json!({ "skill": " style ", "path": "" }),
        json!({ "skill": "style", "path": "SKILL.md" }),
    ] {
        assert_eq!(fixture.call(input).await, expected);
    }
    fixture.check("style", "references/names.md", "Names are short.").await;
    fixture.check("style", "./references//names.md", "Names are short.").await;
    assert_eq!(fixture.tool.class(&json!({})), EffectClass::Pure);
    let match_text = fixture.tool.rule_match_texts(&json!({ "skill": "style", "path": "a" }));
    assert_eq!(match_text, ["style/a"]);
}

#[tokio::test]
async fn the_project_s_skill_is_read_before_claude_s() {
    let fixture = Fixture::new();
    fixture.write_file(".claude/skills/style/SKILL.md", "---\n---\nTheirs.");
    fixture.check("style", "", "Theirs.").await;
    fixture.write_file("skills/style/SKILL.md", STYLE_SKILL);
    fixture.check("style", "", "Short names.").await;
}

#[tokio::test]
async fn a_claude_skill_is_found_by_the_name_made_from_its_folder() {
    let fixture = Fixture::new();
    let check = async |expected: &str| {
        let output =
            fixture.call_with(&["data-analysis"], json!({ "skill": "data-analysis" })).await;
        assert!(output.contains(expected), "{output}");
    };
    fixture.write_file("skills/Data Analysis/SKILL.md", "---\n---\nOurs.");
    check("there is no skill `data-analysis`").await;
    fixture.write_file(".claude/skills/Data Analysis/SKILL.md", "---\n---\nTheirs.");
    check("Theirs.").await;
    fixture.write_file(".claude/skills/data-analysis/SKILL.md", "---\n---\nNamed.");
    check("Named.").await;
}

#[tokio::test]
async fn no_path_leads_out_of_a_skill() {
    let fixture = Fixture::new();
    fixture.write_file("skills/style/SKILL.md", STYLE_SKILL);
    fixture.write_file("skills/style/.env", "the secret");
    fixture.write_file("skills/style/key.pem", "the secret");
    fixture.write_file("skills/style/kept", "the secret");
    fixture.write_file("skills/style/deep/file", "x");
    fixture.write_file("skills/style/bytes", b"a\0b");
    fixture.write_file("skills/style/long", "x".repeat(300_000));
    fixture.write_file("secret.txt", "the secret");
    fixture.link("../../../secret", "skills/style/link");
    fixture.link("../..", "skills/style/up");
    fixture.link("style", "skills/other");
    for (path, expected) in [
        ("../../secret.txt", "has `..`"),
        ("../a", "write the path relative to the skill's folder, such as"),
        ("/etc/passwd", "outside of the skill's folder"),
        ("~/x", "outside of the skill's folder"),
        ("link", "is a symbolic link"),
        ("up/secret.txt", "is a symbolic link"),
        (".env", "file of secrets"),
        ("key.pem", "private key"),
        ("kept", "belongs to the runtime"),
        ("deep", "is a folder"),
        (".", "the skill's folder"),
        ("none", "does not exist"),
        ("Deep/file", "exists as `deep`"),
        ("bytes", "is binary"),
        ("long", "longer than 262144 bytes"),
        ("a\\b", "separate folders"),
    ] {
        fixture.check("style", path, expected).await;
    }
    for skill in ["", "..", "../style", "Style", "style/deep", ".claude"] {
        fixture.check(skill, "", "lower-case letters").await;
    }
    fixture.check("other", "", "is a symbolic link").await;
    fixture.check("none", "", "there is no skill `none`").await;
    let output = fixture.call(json!({ "name": "style" })).await;
    assert!(output.contains("read_skill can't read its input"), "{output}");
}

#[tokio::test]
async fn an_agent_reads_only_its_listed_skills() {
    let fixture = Fixture::new();
    fixture.write_file("skills/style/SKILL.md", STYLE_SKILL);
    fixture.write_file("skills/hidden/SKILL.md", "nothing but the secret");
    let check = async |skills: &[&str], input: Value, expected: &str| {
        let output = fixture.call_with(skills, input).await;
        assert_eq!(output, expected);
    };
    let hidden_input = json!({ "skill": "hidden" });
    let expected =
        "The skill was not read: `hidden` is not one of your skills; you have: style, tests.";
    check(&["style", "tests"], hidden_input.clone(), expected).await;
    check(&["style", "tests"], json!({ "skill": "hidden", "path": "SKILL.md" }), expected).await;
    let expected = "The skill was not read: `hidden` is not one of your skills; you have none.";
    check(&[], hidden_input, expected).await;
    let style_input = json!({ "skill": "style" });
    check(&["style"], style_input, "# Style\n\nShort names.").await;
}

#[tokio::test]
async fn a_long_file_list_is_truncated_with_a_notice() {
    let fixture = Fixture::new();
    fixture.write_file("skills/many/SKILL.md", STYLE_SKILL);
    for number in 0..250 {
        fixture.write_file(&format!("skills/many/{number:03}.md"), "x");
    }
    fixture.write_file("skills/deep/SKILL.md", STYLE_SKILL);
    fixture.write_file("skills/deep/1/2/3/4/5/6/7/x.md", "x");
    fixture.check("many", "", "[There are more files that are not listed.]").await;
    fixture.check("deep", "", "[There are more files that are not listed.]").await;
}
