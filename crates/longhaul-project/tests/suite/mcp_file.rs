//! Tests of `.mcp.json` files: valid ones of other programs, invalid ones and malicious ones.

use std::fs;

use longhaul_core::time::Millis;
use longhaul_project::config::env::Env;
use longhaul_project::config::process_env::ProcessEnv;
use longhaul_project::mcp::file::McpFile;
use longhaul_project::mcp::server::{ResolvedMcpServer, Transport};
use tempfile::TempDir;

fn load_file(text: impl AsRef<[u8]>) -> (TempDir, McpFile) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(".mcp.json");
    fs::write(&path, text).unwrap();
    let file = McpFile::load_from_path(&path);
    (folder, file)
}

fn env(pairs: &[(&str, &str)]) -> Env {
    let pairs = pairs.iter();
    Env::new(&ProcessEnv {
        env: pairs.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        ..ProcessEnv::default()
    })
}

const VALID_FILE: &str = r#"{
  "mcpServers": {
    "github": {
      "command": "npx",
      "args": ["-y", "@scope/server-github"],
      "env": { "GITHUB_TOKEN": "${GITHUB_TOKEN}", "LEVEL": 3.10, "DEBUG": false },
      "perRun": true,
      "timeout": "90s",
      "elicitation": "decline"
    },
    "docs": { "type": "http", "url": "https://docs.example/mcp?key=${KEY:-none}", "headers": { "Authorization": "Bearer ${TOKEN}" }, "timeout": 1500 },
    "other": { "type": "streamable-http", "url": "${BASE}/mcp", "disabled": true, "alwaysAllow": ["x"] },
    "own": { "type": "stdio", "command": "./server.py", "cwd": "tools" }
  }
}"#;

#[test]
fn files_of_other_programs_are_accepted() {
    let (folder, file) = load_file(VALID_FILE);
    assert_eq!(file.problems, []);
    let names: Vec<&str> = file.servers.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["github", "docs", "other", "own"]);
    assert!(file.servers.iter().all(|one| one.problems.is_empty()), "{file:?}");
    let notes: Vec<String> = file.notes.iter().map(ToString::to_string).collect();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].starts_with(".mcp.json:12:"), "{notes:?}");
    assert!(notes[0].contains("unknown key `alwaysAllow`"), "{notes:?}");
    let [github, docs, other, own] = &file.servers[..] else { panic!("expected four servers") };
    assert!(github.per_run && !docs.per_run && other.disabled && !own.disabled);
    assert_eq!(github.timeout, Millis::from_secs(90));
    assert_eq!(docs.timeout, Millis(1_500));
    let root = folder.path();
    let set_env = env(&[("GITHUB_TOKEN", "gh-s3cret"), ("TOKEN", "t-s3cret")]);
    let resolved = ResolvedMcpServer::resolve(github, &set_env, root).unwrap();
    let Transport::Stdio { command, args, env: server_env, .. } = resolved.transport else {
        panic!("not a stdio transport")
    };
    assert_eq!((command.as_str(), args.len()), ("npx", 2));
    assert_eq!(server_env["GITHUB_TOKEN"], "gh-s3cret");
    assert_eq!((&*server_env["LEVEL"], &*server_env["DEBUG"]), ("3.10", "false"));
    assert_eq!(resolved.cwd, root);
    let resolved = ResolvedMcpServer::resolve(docs, &set_env, root).unwrap();
    let Transport::Http { url, headers, .. } = resolved.transport else {
        panic!("not an HTTP transport")
    };
    assert_eq!(url, "https://docs.example/mcp?key=none");
    assert_eq!(headers["Authorization"], "Bearer t-s3cret");
    let resolved = ResolvedMcpServer::resolve(own, &set_env, root).unwrap();
    assert_eq!(resolved.cwd, root.join("tools"));
    let error = ResolvedMcpServer::resolve(github, &env(&[]), root).unwrap_err();
    assert!(error.contains("GITHUB_TOKEN is not set"), "{error}");
    let error =
        ResolvedMcpServer::resolve(other, &env(&[("BASE", "ftp://s3cret")]), root).unwrap_err();
    assert!(error.contains("not an http:// or https:// URL"), "{error}");
    let split_env = env(&[("TOKEN", "a\r\nb: s3cret")]);
    let error = ResolvedMcpServer::resolve(docs, &split_env, root).unwrap_err();
    assert!(error.contains("line break"), "{error}");
    let zero_env = env(&[("GITHUB_TOKEN", "a\0b")]);
    let error = ResolvedMcpServer::resolve(github, &zero_env, root).unwrap_err();
    assert!(error.contains("zero byte"), "{error}");
    let debug_text = format!("{file:?}{:?}", ResolvedMcpServer::resolve(github, &set_env, root));
    assert!(!debug_text.contains("s3cret"), "{debug_text}");
}

/// Errors that concern the whole file.
#[test]
fn an_invalid_file_reports_the_position_and_has_no_servers() {
    for (text, expected) in [
        ("", ".mcp.json:1:"),
        ("{\n  \"mcpServers\": {\n", ".mcp.json:"),
        ("{\"mcpServers\": {}} x", "trailing characters"),
        ("[]", "`.mcp.json` is a list: write an object"),
        ("{}", "`mcpServers` is missing"),
        ("{\"servers\": {}}", "`mcpServers` is missing"),
        ("{\"mcpServers\": []}", ".mcp.json:1:16: `mcpServers` is a list: write an object"),
        ("{\"mcpServers\": {}, \"mcpServers\": {}}", "duplicate key `mcpServers`"),
    ] {
        let (_folder, file) = load_file(text);
        let problem = file.problems.first().expect(text).to_string();
        assert!(problem.contains(expected), "{text}: {problem}");
        assert!(problem.starts_with(".mcp.json"), "{problem}");
        let error = file.find_server("github").unwrap_err();
        assert!(error.contains("longhaul mcp ls"), "{error}");
    }
    let (_folder, file) = load_file(b"{\"mcpServers\": {\"\xff\": {}}}");
    assert!(file.problems[0].message.contains("UTF-8"), "{file:?}");
    let (_folder, file) = load_file(" ".repeat((1 << 20) + 1));
    assert!(file.problems[0].message.contains("longer than 1048576 bytes"), "{file:?}");
    let many_servers: Vec<String> =
        (0..65).map(|n| format!("\"s{n}\": {{\"command\": \"x\"}}")).collect();
    let (_folder, file) = load_file(format!("{{\"mcpServers\": {{{}}}}}", many_servers.join(",")));
    assert!(file.problems[0].message.contains("the maximum is 64"), "{file:?}");
    let deep = format!("{{\"mcpServers\": {}", "[".repeat(100_000));
    assert!(!load_file(deep).1.problems.is_empty());
    let (_folder, file) = load_file(format!("\u{feff}{VALID_FILE}"));
    assert_eq!(file.servers.len(), 4);
    let folder = tempfile::tempdir().unwrap();
    let file = McpFile::load_from_path(&folder.path().join(".mcp.json"));
    assert!(!file.exists());
    assert!(file.find_server("x").unwrap_err().contains("There is no `.mcp.json`"));
    fs::create_dir(folder.path().join(".mcp.json")).unwrap();
    let file = McpFile::load_from_path(&folder.path().join(".mcp.json"));
    assert_eq!(file.problems[0].to_string(), ".mcp.json: the file is not a regular file");
}

#[test]
fn a_server_with_an_invalid_name_is_broken_and_the_others_are_not() {
    for name in ["a b", "", "a/../b", "a\\nb", &"n".repeat(65)] {
        let server = "{\"command\": \"x\"}";
        let (folder, file) =
            load_file(format!("{{\"mcpServers\": {{\"{name}\": {server}, \"good\": {server}}}}}"));
        assert_eq!(file.problems, [], "{name}");
        let [broken, good] = file.servers.as_slice() else { panic!("{file:?}") };
        assert!(!broken.name.contains('\n') && broken.name.len() <= 64, "{broken:?}");
        let error = ResolvedMcpServer::resolve(broken, &env(&[]), folder.path()).unwrap_err();
        assert!(error.contains("is not a valid server name"), "{error}");
        assert!(ResolvedMcpServer::resolve(good, &env(&[]), folder.path()).is_ok());
        assert!(file.find_server("good").is_ok());
    }
}

/// Checks the error of an invalid server next to a valid one.
fn assert_server_problem(server: &str, expected: &str) {
    let text =
        format!("{{\"mcpServers\": {{\n\"bad\": {server},\n\"good\": {{\"command\": \"x\"}}}}}}");
    let (folder, file) = load_file(&text);
    assert_eq!(file.problems, [], "{text}");
    let problem = file.servers[0].problems.first().expect(&text).to_string();
    assert!(problem.contains(expected), "{server}: {problem}");
    assert!(problem.starts_with(".mcp.json:2:"), "{server}: {problem}");
    assert!(problem.contains("`bad`"), "{server}: {problem}");
    assert!(!problem.contains("s3cret"), "{server}: {problem}");
    assert!(ResolvedMcpServer::resolve(&file.servers[0], &env(&[]), folder.path()).is_err());
    let good = file.find_server("good").unwrap();
    assert!(ResolvedMcpServer::resolve(good, &env(&[]), folder.path()).is_ok());
}

/// An invalid server does not affect the others.
#[test]
fn an_invalid_server_reports_the_position_and_leaves_the_others_usable() {
    for (server, expected) in [
        ("1", "is a number: write an object"),
        ("{}", "`command` is missing"),
        (r#"{"type": "http"}"#, "`url` is missing"),
        (r#"{"type": "sse", "url": "https://x.example"}"#, "old SSE transport"),
        (r#"{"type": "htp", "url": "https://x.example"}"#, "did you mean `http`?"),
        (r#"{"type": 3, "command": "x"}"#, "`type` is a number"),
        (r#"{"command": "x", "url": "https://x.example"}"#, "write one of them"),
        (r#"{"command": ""}"#, "`command` is empty"),
        (r#"{"command": ["s3cret"]}"#, "`command` is a list"),
        (r#"{"command": "x", "args": "s3cret"}"#, "`args` is text"),
        (r#"{"command": "x", "args": [1]}"#, "`args[0]` is a number: write text in quotes"),
        (r#"{"command": "x", "env": {"A": {}}}"#, "`env.A` is an object: write text in quotes"),
        (r#"{"command": "x", "env": {"A=B": "x"}}"#, "contains the invalid name"),
        (r#"{"url": "https://x.example", "headers": {"A: B": "x"}}"#, "contains the invalid name"),
        (r#"{"url": "file:///etc/passwd"}"#, "`url` is not valid"),
        (r#"{"command": "x", "timeout": 0}"#, "`timeout` is a number"),
        (r#"{"command": "x", "elicitation": true}"#, "`elicitation` can only be \"decline\""),
        (r#"{"command": "x", "elicitation": "defaults"}"#, "are always declined"),
        (r#"{"command": "x", "timeout": "soon"}"#, "`timeout` is text"),
        (r#"{"command": "x", "perRun": "yes"}"#, "`perRun` is text"),
        (r#"{"command": "x"}, "bad": {"command": "y"}"#, "is defined twice"),
    ] {
        assert_server_problem(server, expected);
    }
}

#[test]
fn a_duplicate_key_is_noted_and_the_last_one_wins() {
    let (_folder, file) = load_file(
        r#"{"mcpServers": {"a": {"command": "x", "command": "y", "env": {"A": "1", "A": "2"}, "url2": 1}}}"#,
    );
    let notes: Vec<String> = file.notes.iter().map(ToString::to_string).collect();
    let notes = notes.join("\n");
    for expected in ["`command` is a duplicate", "`env.A` is a duplicate", "did you mean `url`?"] {
        assert!(notes.contains(expected), "{notes}");
    }
    let Some(Transport::Stdio { command, env, .. }) = &file.servers[0].transport else {
        panic!("not a stdio transport")
    };
    assert_eq!((command.as_str(), env["A"].as_str()), ("y", "2"));
}

#[test]
fn an_invalid_oauth_table_is_reported_with_its_position() {
    for (server, expected) in [
        (
            r#"{"url": "https://x.example", "oauth": ["s3cret"]}"#,
            "`oauth` is a list: write an object",
        ),
        (
            r#"{"url": "https://x.example", "oauth": {"clientId": 3}}"#,
            "`clientId` is a number: write text in quotes",
        ),
        (r#"{"url": "https://x.example", "oauth": {"clientSecret": "s3cret"}}"#, "no `clientId`"),
        (r#"{"url": "https://x.example", "oauth": {"clientId": ""}}"#, "`clientId` is empty"),
        (
            r#"{"url": "https://x.example", "oauth": {"scopes": "s3cret"}}"#,
            "`scopes` is text: write a list",
        ),
        (r#"{"url": "https://x.example", "oauth": {"scopes": ["a b"]}}"#, "without spaces"),
        (
            r#"{"url": "https://x.example", "oauth": {"callbackPort": 99999}}"#,
            "write a port from 1 to 65535",
        ),
    ] {
        assert_server_problem(server, expected);
    }
}

/// Variables in login settings are expanded like others.
#[test]
fn an_oauth_table_is_parsed_and_expanded() {
    let (folder, file) = load_file(
        r#"{"mcpServers": {
            "far": { "url": "https://x.example/mcp", "oauth": {
                "clientId": "${ID}", "clientSecret": "${SECRET}", "scopes": ["a", "${MORE:-b}"],
                "callbackPort": 8123, "clientMetadataUrl": "https://x.example/us", "other": 1 } },
            "bad": { "url": "https://x.example/mcp", "oauth": { "clientMetadataUrl": "${DOC}" } }
        }}"#,
    );
    let notes: Vec<String> = file.notes.iter().map(ToString::to_string).collect();
    assert!(notes[0].contains("unknown key `other`"), "{notes:?}");
    let [valid_server, invalid_server] = &file.servers[..] else {
        panic!("{file:?}");
    };
    let names = valid_server.transport.as_ref().unwrap().all_referenced_variables();
    assert!(names.iter().eq(["ID", "MORE", "SECRET"]), "{names:?}");
    let set_env = env(&[("ID", "us"), ("SECRET", "s3cret"), ("DOC", "http://x.example")]);
    let resolved = ResolvedMcpServer::resolve(valid_server, &set_env, folder.path()).unwrap();
    let Transport::Http { oauth, .. } = resolved.transport else {
        panic!("{file:?}");
    };
    assert_eq!(oauth.client_id.as_deref(), Some("us"));
    assert_eq!(oauth.client_secret.as_deref(), Some("s3cret"));
    assert_eq!(oauth.scopes, ["a", "b"]);
    assert_eq!(oauth.callback_port, Some(8123));
    assert!(!format!("{oauth:?}").contains("s3cret"));
    let error = ResolvedMcpServer::resolve(valid_server, &env(&[]), folder.path()).unwrap_err();
    assert!(error.contains("ID is not set"), "{error}");
    let error = ResolvedMcpServer::resolve(invalid_server, &set_env, folder.path()).unwrap_err();
    assert!(error.contains("not an https:// URL"), "{error}");
}
