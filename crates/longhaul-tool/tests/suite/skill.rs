//! `read_skill` over real directories: what it shows, and what it refuses.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;

use longhaul_core::id::{CallId, Epoch, RunId};
use longhaul_core::message::Part;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{Tool, ToolContext};
use longhaul_tool::Skills;
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
        let skills = Skills::new(&root, &["skills", ".claude/skills"]);
        let tool = skills.with_protected([root.join("skills/style/kept")]).tool();
        Self { tool: tool.unwrap(), dir }
    }

    fn write_file(&self, below: &str, content: impl AsRef<[u8]>) {
        let file = self.dir.path().join("work").join(below);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
    }

    fn link(&self, to: &str, below: &str) {
        symlink(to, self.dir.path().join("work").join(below)).unwrap();
    }

    async fn call(&self, input: Value) -> String {
        let skills = ["style", "many", "deep", "other", "none"];
        self.call_with(&skills, input).await
    }

    /// Calls it for an agent whose file lists these skills.
    async fn call_with(&self, skills: &[&str], input: Value) -> String {
        let call = CallId { turn: 1, index: 1 };
        let around = ToolContext {
            skills: skills.iter().map(|&name| name.to_owned()).collect(),
            ..ToolContext::new(RunId::from_bits(7), call, Epoch(1))
        };
        match self.tool.call(input, &around).await {
            Ok(output) => match output.content.as_slice() {
                [Part::Text(text)] => text.to_string(),
                other => panic!("{other:?}"),
            },
            Err(failure) => failure.into_message(),
        }
    }

    async fn check(&self, skill: &str, path: &str, expected: &str) {
        let said = self.call(json!({ "skill": skill, "path": path })).await;
        assert!(said.contains(expected), "{skill} {path}: {said}");
        assert!(!said.contains("the secret"), "{said}");
    }
}

const STYLE_SKILL: &str = "---\nname: style\ndescription: How.\n---\n\n# Style\n\nShort names.\n";

#[tokio::test]
async fn a_skill_is_read_with_the_list_of_its_files() {
    let world = Fixture::new();
    world.write_file("skills/style/SKILL.md", STYLE_SKILL);
    let said = world.call(json!({ "skill": "style" })).await;
    assert_eq!(said, "# Style\n\nShort names.");
    world.write_file("skills/style/references/names.md", "Names are short.");
    world.write_file("skills/style/check.sh", "true");
    world.write_file("skills/style/.hidden", "x");
    world.write_file("skills/style/.env", "KEY=the secret");
    let expected = "# Style\n\nShort names.\n\n[Files of this skill, to be read with `path`:]\ncheck.sh\nreferences/names.md";
    for input in [
        json!({ "skill": "style" }),
        json!({ "skill": " style ", "path": "" }),
        json!({ "skill": "style", "path": "SKILL.md" }),
    ] {
        assert_eq!(world.call(input).await, expected);
    }
    world.check("style", "references/names.md", "Names are short.").await;
    world.check("style", "./references//names.md", "Names are short.").await;
    assert_eq!(world.tool.class(&json!({})), EffectClass::Pure);
    let subject = world.tool.subjects(&json!({ "skill": "style", "path": "a" }));
    assert_eq!(subject, ["style/a"]);
}

#[tokio::test]
async fn the_project_s_skill_is_read_before_claude_s() {
    let world = Fixture::new();
    world.write_file(".claude/skills/style/SKILL.md", "---\n---\nTheirs.");
    world.check("style", "", "Theirs.").await;
    world.write_file("skills/style/SKILL.md", STYLE_SKILL);
    world.check("style", "", "Short names.").await;
}

#[tokio::test]
async fn no_path_leads_out_of_a_skill() {
    let world = Fixture::new();
    world.write_file("skills/style/SKILL.md", STYLE_SKILL);
    world.write_file("skills/style/.env", "the secret");
    world.write_file("skills/style/key.pem", "the secret");
    world.write_file("skills/style/kept", "the secret");
    world.write_file("skills/style/deep/file", "x");
    world.write_file("skills/style/bytes", b"a\0b");
    world.write_file("skills/style/long", "x".repeat(300_000));
    world.write_file("secret.txt", "the secret");
    world.link("../../../secret", "skills/style/link");
    world.link("../..", "skills/style/up");
    world.link("style", "skills/other");
    for (path, expected) in [
        ("../../secret.txt", "has `..`"),
        ("../a", "write the path from the skill's folder, such as"),
        ("/etc/passwd", "outside of the skill's folder"),
        ("~/x", "outside of the skill's folder"),
        ("link", "is a link"),
        ("up/secret.txt", "is a link"),
        (".env", "file of secrets"),
        ("key.pem", "private key"),
        ("kept", "belongs to the runtime"),
        ("deep", "is a folder"),
        (".", "the skill's folder"),
        ("none", "is not there"),
        ("Deep/file", "is spelled `deep`"),
        ("bytes", "binary file"),
        ("long", "longer than 262144 bytes"),
        ("a\\b", "part folders"),
    ] {
        world.check("style", path, expected).await;
    }
    for skill in ["", "..", "../style", "Style", "style/deep", ".claude"] {
        world.check(skill, "", "lower-case letters").await;
    }
    world.check("other", "", "is a link").await;
    world.check("none", "", "there is no skill `none`").await;
    let said = world.call(json!({ "name": "style" })).await;
    assert!(said.contains("read_skill can't read its input"), "{said}");
}

#[tokio::test]
async fn an_agent_reads_only_its_listed_skills() {
    let world = Fixture::new();
    world.write_file("skills/style/SKILL.md", STYLE_SKILL);
    world.write_file("skills/hidden/SKILL.md", "nothing but the secret");
    let check = async |skills: &[&str], input: Value, expected: &str| {
        let said = world.call_with(skills, input).await;
        assert_eq!(said, expected);
    };
    let hidden = json!({ "skill": "hidden" });
    let why = "The skill was not read: `hidden` is no skill of yours; you have: style, tests.";
    check(&["style", "tests"], hidden.clone(), why).await;
    check(&["style", "tests"], json!({ "skill": "hidden", "path": "SKILL.md" }), why).await;
    let why = "The skill was not read: `hidden` is no skill of yours, and you have none.";
    check(&[], hidden, why).await;
    let style = json!({ "skill": "style" });
    check(&["style"], style, "# Style\n\nShort names.").await;
}

#[tokio::test]
async fn a_long_file_list_is_truncated_with_a_notice() {
    let world = Fixture::new();
    world.write_file("skills/many/SKILL.md", STYLE_SKILL);
    for number in 0..250 {
        world.write_file(&format!("skills/many/{number:03}.md"), "x");
    }
    world.write_file("skills/deep/SKILL.md", STYLE_SKILL);
    world.write_file("skills/deep/1/2/3/4/5/6/7/x.md", "x");
    world.check("many", "", "[There is more that is not listed.]").await;
    world.check("deep", "", "[There is more that is not listed.]").await;
}
