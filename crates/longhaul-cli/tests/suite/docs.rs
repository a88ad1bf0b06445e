//! Every agent, script and setting that the documents show is one that this
//! build takes.
//!
//! Never: a block that nobody reads. One in a language that is not known here
//! fails the test.

use std::path::Path;

use longhaul::config::load;
use longhaul::config::process_env::ProcessEnv;
use longhaul::mcp::file::McpFile;
use longhaul_model::scripted::Script;
use serde_json::Value;

/// A fenced block of a document.
struct CodeBlock {
    position: String,
    language: String,
    text: String,
}

fn document_blocks() -> Vec<CodeBlock> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = vec![root.join("README.md"), root.join("ARCHITECTURE.md")];
    let docs = std::fs::read_dir(root.join("docs")).expect("the documents");
    files.extend(docs.map(|entry| entry.expect("a document").path()));
    files.iter().flat_map(|path| parse_blocks(path)).collect()
}

fn parse_blocks(path: &Path) -> Vec<CodeBlock> {
    let text = std::fs::read_to_string(path).expect("a text");
    let mut blocks: Vec<CodeBlock> = Vec::new();
    let mut open = false;
    for (number, line) in text.lines().enumerate() {
        match line.strip_prefix("```") {
            Some(language) if !open => {
                open = true;
                blocks.push(CodeBlock {
                    position: format!("{}:{}", path.display(), number + 1),
                    language: language.to_owned(),
                    text: String::new(),
                });
            }
            Some(_) => open = false,
            None if open => {
                let block = blocks.last_mut().expect("a block is open");
                block.text.push_str(line);
                block.text.push('\n');
            }
            None => {}
        }
    }
    blocks
}

/// The name that stands in a front matter.
fn front_matter_name(block: &CodeBlock) -> &str {
    let mut lines = block.text.lines();
    let name = lines.find_map(|line| line.strip_prefix("name: "));
    name.unwrap_or("unnamed")
}

/// An agent, in the folder of those who read it.
fn check_agent(block: &CodeBlock, among: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let name = front_matter_name(block);
    std::fs::create_dir_all(folder.path().join(among)).expect("a folder");
    let file = folder.path().join(format!("{among}/{name}.md"));
    std::fs::write(file, &block.text).expect("a file");
    let args = ["agents", "check", name, "--json"];
    let output = crate::suite::cli::longhaul_in(folder.path(), &args, &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect(&said);
    // Only the file is here; what it names is not.
    let problems = told["problems"].as_array().expect("a list");
    let wrong = problems.iter().find(|problem| problem["kind"] != "missing");
    assert_eq!(wrong, None, "{}: {said}", block.position);
}

fn check_skill(block: &CodeBlock) {
    let folder = tempfile::tempdir().expect("a folder");
    let skill = folder.path().join("skills").join(front_matter_name(block));
    std::fs::create_dir_all(&skill).expect("a folder");
    std::fs::write(skill.join("SKILL.md"), &block.text).expect("a file");
    let loaded = longhaul::skills::load(folder.path(), Path::new(""));
    assert_eq!(loaded.problems, [], "{}", block.position);
    assert_eq!(loaded.skills.len(), 1, "{}", block.position);
}

fn check_settings(block: &CodeBlock) {
    let folder = tempfile::tempdir().expect("a folder");
    let home = folder.path().join("home");
    let own = home.join(".config/longhaul");
    std::fs::create_dir_all(&own).expect("a folder");
    // Some settings are only for the user's own file.
    let at = match block.text.contains("[trust]") {
        true => own,
        false => folder.path().to_owned(),
    };
    std::fs::write(at.join("longhaul.toml"), &block.text).expect("a file");
    let here =
        ProcessEnv { cwd: folder.path().to_owned(), home: Some(home), ..ProcessEnv::default() };
    if let Err(error) = load::load(&here, &[]) {
        panic!("{}: {error}", block.position);
    }
}

/// The only JSON that a person writes here is `.mcp.json`.
fn check_servers(block: &CodeBlock) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(".mcp.json");
    std::fs::write(&path, &block.text).expect("a file");
    let file = McpFile::load_from(&path);
    let faults = file.servers.iter().flat_map(|server| &server.problems);
    let faults = faults.chain(&file.problems).chain(&file.notes);
    let faults: Vec<String> = faults.map(ToString::to_string).collect();
    assert!(faults.is_empty(), "{}: {faults:?}", block.position);
}

/// Rust is shown as it stands in an example, which is built and run.
fn check_example(block: &CodeBlock) {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../longhaul/examples");
    let files = std::fs::read_dir(examples).expect("the examples");
    let mut texts = files.map(|file| {
        let path = file.expect("an example").path();
        std::fs::read_to_string(path).expect("a text")
    });
    let is_shown = texts.any(|text| text.contains(&block.text));
    assert!(is_shown, "{}: no example says this", block.position);
}

#[test]
fn every_code_block_of_the_documents_is_valid() {
    let mut seen = Vec::new();
    for block in document_blocks() {
        match block.language.as_str() {
            // Commands, trees and pictures.
            "" => {}
            "markdown" => check_agent(&block, "agents"),
            "markdown claude" => check_agent(&block, ".claude/agents"),
            "markdown skill" => check_skill(&block),
            "toml" => check_settings(&block),
            "json" => check_servers(&block),
            // What agents gave: `shipped` plays them and compares.
            "json output" => drop(serde_json::from_str::<Value>(&block.text).expect("JSON")),
            "rust" => check_example(&block),
            // The tests of the library build it, kill it and run it again.
            "rust program" => {}
            "yaml" => drop(Script::parse(&block.position, &block.text).expect("a script")),
            other => panic!("{}: nobody reads a block in `{other}`", block.position),
        }
        seen.push(block.language);
    }
    for language in ["markdown", "rust", "toml", "yaml"] {
        assert!(seen.iter().any(|one| one == language), "no {language} block");
    }
}
