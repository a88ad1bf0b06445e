//! Every agent, script and setting in the documents is valid in this build. A block in an unknown
//! language fails the test.

use std::path::Path;

use longhaul_model::scripted::Script;
use longhaul_project::config::load;
use longhaul_project::config::process_env::ProcessEnv;
use longhaul_project::mcp::file::McpFile;
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
    let docs = std::fs::read_dir(root.join("docs")).expect("the docs folder is readable");
    files.extend(docs.map(|entry| entry.expect("the entry is readable").path()));
    files.iter().flat_map(|path| parse_blocks(path)).collect()
}

fn parse_blocks(path: &Path) -> Vec<CodeBlock> {
    let text = std::fs::read_to_string(path).expect("the file is readable");
    let mut blocks: Vec<CodeBlock> = Vec::new();
    let mut in_block = false;
    for (index, line) in text.lines().enumerate() {
        match line.strip_prefix("```") {
            Some(language) if !in_block => {
                in_block = true;
                blocks.push(CodeBlock {
                    position: format!("{}:{}", path.display(), index + 1),
                    language: language.to_owned(),
                    text: String::new(),
                });
            }
            Some(_) => in_block = false,
            None if in_block => {
                let block = blocks.last_mut().expect("a block is open");
                block.text.push_str(line);
                block.text.push('\n');
            }
            None => {}
        }
    }
    blocks
}

fn front_matter_name(block: &CodeBlock) -> &str {
    let mut lines = block.text.lines();
    let name = lines.find_map(|line| line.strip_prefix("name: "));
    name.unwrap_or("unnamed")
}

fn check_agent(block: &CodeBlock, agents_folder: &str) {
    let folder = tempfile::tempdir().expect("the folder is created");
    let name = front_matter_name(block);
    std::fs::create_dir_all(folder.path().join(agents_folder)).expect("the folder is created");
    let file = folder.path().join(format!("{agents_folder}/{name}.md"));
    std::fs::write(file, &block.text).expect("the file is written");
    let args = ["agents", "check", name, "--json"];
    let output = crate::suite::cli::longhaul_in(folder.path(), &args, &[]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect(&stderr);
    // Only the file exists here, not the files that it names.
    let problems = json["problems"].as_array().expect("`problems` is a list");
    let unexpected = problems.iter().find(|problem| problem["kind"] != "missing");
    assert_eq!(unexpected, None, "{}: {stderr}", block.position);
}

fn check_skill(block: &CodeBlock) {
    let folder = tempfile::tempdir().expect("the folder is created");
    let skill = folder.path().join("skills").join(front_matter_name(block));
    std::fs::create_dir_all(&skill).expect("the folder is created");
    std::fs::write(skill.join("SKILL.md"), &block.text).expect("the file is written");
    let loaded = longhaul_project::skills::load_skills(folder.path(), Path::new(""));
    assert_eq!(loaded.problems, [], "{}", block.position);
    assert_eq!(loaded.skills.len(), 1, "{}", block.position);
}

fn check_settings(block: &CodeBlock) {
    let folder = tempfile::tempdir().expect("the folder is created");
    let home = folder.path().join("home");
    let user_folder = home.join(".config/longhaul");
    std::fs::create_dir_all(&user_folder).expect("the folder is created");
    // Some settings are only valid in the user's own file.
    let is_user_file = ["[trust]", "[secrets."].iter().any(|table| block.text.contains(table));
    let at = match is_user_file {
        true => user_folder,
        false => folder.path().to_owned(),
    };
    std::fs::write(at.join("longhaul.toml"), &block.text).expect("the file is written");
    let process_env =
        ProcessEnv { cwd: folder.path().to_owned(), home: Some(home), ..ProcessEnv::default() };
    if let Err(error) = load::load(&process_env, &[]) {
        panic!("{}: {error}", block.position);
    }
}

fn check_chain(block: &CodeBlock) {
    let folder = tempfile::tempdir().expect("the folder is created");
    std::fs::create_dir_all(folder.path().join("chains")).expect("the folder is created");
    std::fs::write(folder.path().join("chains/shown.toml"), &block.text).expect("it is written");
    let output = crate::suite::cli::longhaul_in(folder.path(), &["chains", "check", "shown"], &[]);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}: {printed}", block.position);
}

/// Checks an `.mcp.json`, the only JSON that people write.
fn check_servers(block: &CodeBlock) {
    let folder = tempfile::tempdir().expect("the folder is created");
    let path = folder.path().join(".mcp.json");
    std::fs::write(&path, &block.text).expect("the file is written");
    let file = McpFile::load_from_path(&path);
    let faults = file.servers.iter().flat_map(|server| &server.problems);
    let faults = faults.chain(&file.problems).chain(&file.notes);
    let faults: Vec<String> = faults.map(ToString::to_string).collect();
    assert!(faults.is_empty(), "{}: {faults:?}", block.position);
}

/// Checks that a Rust block is part of an example, which is compiled and run.
fn check_example(block: &CodeBlock) {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../longhaul/examples");
    let files = std::fs::read_dir(examples).expect("the examples folder is readable");
    let mut texts = files.map(|file| {
        let path = file.expect("the entry is readable").path();
        std::fs::read_to_string(path).expect("the file is readable")
    });
    let is_shown = texts.any(|text| text.contains(&block.text));
    assert!(is_shown, "{}: no example contains this block", block.position);
}

#[test]
fn every_code_block_of_the_documents_is_valid() {
    let mut languages = Vec::new();
    for block in document_blocks() {
        match block.language.as_str() {
            // Commands, folder trees and diagrams.
            "" => {}
            "markdown" => check_agent(&block, "agents"),
            "markdown claude" => check_agent(&block, ".claude/agents"),
            "markdown skill" => check_skill(&block),
            "toml" => check_settings(&block),
            "toml chain" => check_chain(&block),
            "json" => check_servers(&block),
            // Output of agents; the tests of the built-in agents compare it.
            "json output" => {
                drop(serde_json::from_str::<Value>(&block.text).expect("the block is valid JSON"))
            }
            "rust" => check_example(&block),
            // The tests of the library compile the program, kill it and run it again.
            "rust program" => {}
            "yaml" => drop(
                Script::parse_yaml(&block.position, &block.text)
                    .expect("the block is a valid script"),
            ),
            other => panic!("{}: there is no check for a block in `{other}`", block.position),
        }
        languages.push(block.language);
    }
    for language in ["markdown", "rust", "toml", "yaml"] {
        assert!(languages.iter().any(|one| one == language), "no {language} block");
    }
}
