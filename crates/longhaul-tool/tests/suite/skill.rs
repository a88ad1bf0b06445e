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

struct World {
    dir: TempDir,
    tool: Arc<dyn Tool>,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("work");
        fs::create_dir_all(&root).unwrap();
        fs::write(dir.path().join("secret"), "the secret").unwrap();
        let skills = Skills::new(&root, &["skills", ".claude/skills"]);
        let tool = skills.without([root.join("skills/style/kept")]).tool();
        Self {
            tool: tool.unwrap(),
            dir,
        }
    }

    fn put(&self, below: &str, content: impl AsRef<[u8]>) {
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
            Err(failure) => failure.into_words(),
        }
    }

    async fn check(&self, skill: &str, path: &str, expected: &str) {
        let said = self.call(json!({ "skill": skill, "path": path })).await;
        assert!(said.contains(expected), "{skill} {path}: {said}");
        assert!(!said.contains("the secret"), "{said}");
    }
}

const STYLE: &str = "---\nname: style\ndescription: How.\n---\n\n# Style\n\nShort names.\n";

#[tokio::test]
async fn a_skill_says_what_it_says_and_what_belongs_to_it() {
    let world = World::new();
    world.put("skills/style/SKILL.md", STYLE);
    let said = world.call(json!({ "skill": "style" })).await;
    assert_eq!(said, "# Style\n\nShort names.");
    world.put("skills/style/references/names.md", "Names are short.");
    world.put("skills/style/check.sh", "true");
    world.put("skills/style/.hidden", "x");
    world.put("skills/style/.env", "KEY=the secret");
    let expected = "# Style\n\nShort names.\n\n[Files of this skill, to be read with `path`:]\ncheck.sh\nreferences/names.md";
    for input in [
        json!({ "skill": "style" }),
        json!({ "skill": " style ", "path": "" }),
        json!({ "skill": "style", "path": "SKILL.md" }),
    ] {
        assert_eq!(world.call(input).await, expected);
    }
    world
        .check("style", "references/names.md", "Names are short.")
        .await;
    world
        .check("style", "./references//names.md", "Names are short.")
        .await;
    assert_eq!(world.tool.class(&json!({})), EffectClass::Pure);
    let subject = world
        .tool
        .subjects(&json!({ "skill": "style", "path": "a" }));
    assert_eq!(subject, ["style/a"]);
}

#[tokio::test]
async fn the_project_s_skill_is_read_before_claude_s() {
    let world = World::new();
    world.put(".claude/skills/style/SKILL.md", "---\n---\nTheirs.");
    world.check("style", "", "Theirs.").await;
    world.put("skills/style/SKILL.md", STYLE);
    world.check("style", "", "Short names.").await;
}

#[tokio::test]
async fn nothing_leads_out_of_a_skill() {
    let world = World::new();
    world.put("skills/style/SKILL.md", STYLE);
    world.put("skills/style/.env", "the secret");
    world.put("skills/style/key.pem", "the secret");
    world.put("skills/style/kept", "the secret");
    world.put("skills/style/deep/file", "x");
    world.put("skills/style/bytes", b"a\0b");
    world.put("skills/style/long", "x".repeat(300_000));
    world.put("secret.txt", "the secret");
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
async fn an_agent_reads_only_what_its_file_lists() {
    let world = World::new();
    world.put("skills/style/SKILL.md", STYLE);
    world.put("skills/hidden/SKILL.md", "nothing but the secret");
    let check = async |skills: &[&str], input: Value, expected: &str| {
        let said = world.call_with(skills, input).await;
        assert_eq!(said, expected);
    };
    let hidden = json!({ "skill": "hidden" });
    let why = "The skill was not read: `hidden` is no skill of yours; you have: style, tests.";
    check(&["style", "tests"], hidden.clone(), why).await;
    check(
        &["style", "tests"],
        json!({ "skill": "hidden", "path": "SKILL.md" }),
        why,
    )
    .await;
    let why = "The skill was not read: `hidden` is no skill of yours, and you have none.";
    check(&[], hidden, why).await;
    let style = json!({ "skill": "style" });
    check(&["style"], style, "# Style\n\nShort names.").await;
}

#[tokio::test]
async fn a_long_list_is_cut_with_a_word() {
    let world = World::new();
    world.put("skills/many/SKILL.md", STYLE);
    for number in 0..250 {
        world.put(&format!("skills/many/{number:03}.md"), "x");
    }
    world.put("skills/deep/SKILL.md", STYLE);
    world.put("skills/deep/1/2/3/4/5/6/7/x.md", "x");
    world
        .check("many", "", "[There is more that is not listed.]")
        .await;
    world
        .check("deep", "", "[There is more that is not listed.]")
        .await;
}
