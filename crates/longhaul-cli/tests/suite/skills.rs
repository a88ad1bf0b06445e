//! Skills: valid and invalid skill files, and which agents get them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use longhaul_project::skills::{self, LoadedSkills};

use super::agents::{load_files, load_folder, problem_texts};
use super::project::Project;

const VALID_SKILL: &[u8] = b"---\nname: rust-style\ndescription: How Rust is written here.\nlicense: MIT\nmetadata: { author: us }\n---\nUse short names.\n";

fn problems(skills: &LoadedSkills) -> Vec<String> {
    skills.problems.iter().map(ToString::to_string).collect()
}

/// Asserts the problems of `skills/a/SKILL.md`, without the file name.
fn assert_problems(text: &str, expected: &[&str]) {
    let (folder, _) = load_files(&[("skills/a/SKILL.md", text.as_bytes())]);
    let loaded = skills::load_skills(folder.path(), Path::new(""));
    let found = problems(&loaded);
    let found: Vec<&str> =
        found.iter().map(|line| line.strip_prefix("skills/a/SKILL.md:").unwrap()).collect();
    assert_eq!(found, expected, "{text}");
    assert_eq!(loaded.broken_names.len(), usize::from(!expected.is_empty()));
}

#[test]
fn a_skill_file_needs_a_name_and_a_description() {
    assert_problems("---\nname: a\ndescription: x\nallowed-tools: Bash\nversion: 1\n---\n", &[]);
    assert_problems(
        "# A\n",
        &[
            "1:1: a skill file starts with a line `---`, its name and description, and another line `---`",
        ],
    );
    assert_problems(
        "---\nname: a\n---\n",
        &["1:1: a skill needs a `description`: what it does and when to use it"],
    );
    assert_problems("---\ndescription: x\n---\n", &["1:1: a skill needs a name: write `name: a`"]);
    assert_problems(
        "---\nname: b\ndescription: x\n---\n",
        &["2:7: the name `b` differs from the folder's name: rename the folder or write `name: a`"],
    );
    for name in ["A", "a_b", "-a", "a-", "a--b", &"a".repeat(65)] {
        let expected = format!(
            "2:7: `{name}` is not a valid skill name: use lower-case letters, digits and single hyphens, 64 at most"
        );
        assert_problems(&format!("---\nname: {name}\ndescription: x\n---\n"), &[&expected]);
    }
    let long = "x".repeat(1_025);
    assert_problems(
        &format!("---\nname: a\ndescription: {long}\n---\n"),
        &["3:14: `description` is longer than 1024 characters"],
    );
    assert_problems(
        "---\nname: a\ndescription: [x]\n---\n",
        &["3:14: `description` is a list: write text"],
    );
    assert_problems(
        "---\n- a\n---\n",
        &["2:1: the front matter is not a table: write `name:` and `description:`"],
    );
}

#[test]
fn a_project_skill_hides_a_claude_skill() {
    let files: &[(&str, &[u8])] = &[
        ("skills/rust-style/SKILL.md", VALID_SKILL),
        ("skills/empty/README.md", b"no skill"),
        (".claude/skills/rust-style/SKILL.md", b"---\ndescription: Theirs.\n---\n"),
        (".claude/skills/other/SKILL.md", b"---\ndescription: Theirs.\n---\n"),
    ];
    let (folder, _) = load_files(files);
    let loaded = skills::load_skills(folder.path(), Path::new("here"));
    assert_eq!(problems(&loaded), [""; 0]);
    let texts: Vec<String> =
        loaded.skills.iter().map(|one| format!("{}: {}", one.name, one.description)).collect();
    assert_eq!(texts, ["other: Theirs.", "rust-style: How Rust is written here."]);
    assert_eq!(
        loaded.notes[0].1,
        "the skill is not used, since here/skills/rust-style/SKILL.md has the same name"
    );
}

#[test]
fn a_claude_skill_is_named_after_its_folder() {
    let (folder, _) = load_files(&[
        (".claude/skills/pdf-forms/SKILL.md", b"---\nname: PDF Forms\ndescription: A.\n---\n"),
        (".claude/skills/Data Analysis/SKILL.md", b"---\nname: x\ndescription: B.\n---\n"),
        (".claude/skills/data analysis/SKILL.md", b"---\ndescription: C.\n---\n"),
        ("skills/My Style/SKILL.md", b"---\nname: My Style\ndescription: D.\n---\n"),
    ]);
    let loaded = skills::load_skills(folder.path(), Path::new(""));
    let texts: Vec<String> =
        loaded.skills.iter().map(|one| format!("{}: {}", one.name, one.description)).collect();
    assert_eq!(texts, ["data-analysis: B.", "pdf-forms: A."]);
    assert_eq!(loaded.broken_names, ["My Style"]);
    let notes: Vec<String> =
        loaded.notes.iter().map(|(path, note)| format!("{}: {note}", path.display())).collect();
    assert_eq!(
        notes,
        [
            ".claude/skills/data analysis/SKILL.md: the skill is not used, since \
            .claude/skills/Data Analysis/SKILL.md has the same name",
            ".claude/skills: the name of a skill has no spaces, so names are made from the file names: \
            `PDF Forms` is `pdf-forms`, `Data Analysis` is `data-analysis`",
        ]
    );
}

#[test]
fn an_agent_gets_the_skills_that_it_names() {
    let agent = |skills: &str| format!("---\nskills: {skills}\n---\nHello.");
    let (folder, _) = load_files(&[
        ("skills/rust-style/SKILL.md", VALID_SKILL),
        ("skills/tests/SKILL.md", b"---\nname: tests\ndescription: How to test.\n---\n"),
        ("skills/broken/SKILL.md", b"nothing"),
        ("agents/a.md", b"---\n---\n"),
    ]);
    let load = |skills: &str| {
        fs::write(folder.path().join("agents/a.md"), agent(skills)).unwrap();
        load_folder(folder.path(), &[])
    };
    let names = |skills: &str| {
        let loaded = load(skills);
        assert_eq!(problem_texts(&loaded), [""; 0]);
        let skills = loaded.agents[0].agent.skills.iter();
        skills.map(|skill| skill.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names("[tests]"), ["tests"]);
    assert_eq!(names("[tests, rust-style]"), ["tests", "rust-style"]);
    assert_eq!(names("\"*\""), ["rust-style", "tests"]);
    assert_eq!(names("[\"*\"]"), ["rust-style", "tests"]);
    let assert_refused = |skills: &str, expected: &str| {
        assert_eq!(problem_texts(&load(skills)), [format!("agents/a.md:2:{expected}")])
    };
    assert_refused("[rust-stile]", "10: unknown skill `rust-stile`, did you mean `rust-style`?");
    assert_refused("[broken]", "10: the skill `broken` can't be used: fix its SKILL.md first");
    assert_refused("tests", "9: `skills` is \"tests\": write a list such as `skills: [...]`");
    // The name and description of a skill are part of the agent's version; its body is not.
    let version = || load("[tests]").agents[0].agent.definition_hash();
    let before = version();
    let write = |text: &str| fs::write(folder.path().join("skills/tests/SKILL.md"), text).unwrap();
    write("---\nname: tests\ndescription: How to test.\n---\nMuch more.");
    assert_eq!(version(), before);
    write("---\nname: tests\ndescription: How to test well.\n---\n");
    assert_ne!(version(), before);
}

#[test]
fn links_to_skills_are_not_followed() {
    let outside_dir = tempfile::tempdir().unwrap();
    fs::write(outside_dir.path().join("SKILL.md"), VALID_SKILL).unwrap();
    let (folder, _) = load_files(&[("skills/a/SKILL.md", VALID_SKILL)]);
    symlink(outside_dir.path(), folder.path().join("skills/rust-style")).unwrap();
    fs::create_dir(folder.path().join("skills/b")).unwrap();
    symlink("../a/SKILL.md", folder.path().join("skills/b/SKILL.md")).unwrap();
    let found = problems(&skills::load_skills(folder.path(), Path::new("")));
    for name in ["skills/rust-style", "skills/b/SKILL.md"] {
        let expected = format!("`{name}` is a symbolic link; links to skills are not followed");
        assert!(found.iter().any(|line| line.contains(&expected)), "{found:?}");
    }
}

#[test]
fn read_skill_returns_the_current_file() {
    let project = Project::new();
    project.write("skills/rust-style/SKILL.md", std::str::from_utf8(VALID_SKILL).unwrap());
    project.write("skills/rust-style/names.md", "Names are short.");
    project.write(
        "agents/a.md",
        "---\nmodel: scripted/a\nskills: [rust-style]\ntools: [read_skill]\n---\nYou.\n",
    );
    project.write(
        "scripts/a.yaml",
        "replies:\n- tools: [{ name: read_skill, input: { skill: rust-style } }]\n- text: '{{ last_result }}'\n",
    );
    let stdout = project.run(&["run", "a", "milk"], 0).out;
    assert!(stdout.contains("Use short names."), "{stdout}");
    assert!(stdout.contains("names.md") && !stdout.contains("description"), "{stdout}");
}

#[test]
fn an_agent_reads_no_skill_that_its_file_does_not_list() {
    let project = Project::new();
    project.write("skills/rust-style/SKILL.md", std::str::from_utf8(VALID_SKILL).unwrap());
    project.write("skills/hidden/SKILL.md", "Not to be read.");
    project.write("agents/a.md", "---\nmodel: scripted/a\nskills: [rust-style]\n---\nYou.\n");
    project.write(
        "scripts/a.yaml",
        "replies:\n- tools: [{ name: read_skill, input: { skill: hidden } }]\n- text: '{{ last_result }}'\n",
    );
    let stdout = project.run(&["run", "a", "milk"], 0).out;
    let expected = "`hidden` is not one of your skills; you have: rust-style";
    assert!(stdout.contains(expected) && !stdout.contains("Not to be"), "{stdout}");
}
