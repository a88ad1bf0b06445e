//! Servers of others, over pipes: what they have, what they answer, how they end.

use longhaul_core::message::Part;
use longhaul_core::policy::effect::EffectClass;
use longhaul_mcp::Way;
use serde_json::json;

use super::kit::{RUN, alone, around, call, classes, packages, python, soon, stdio, text, tool};

fn node(package: &str, args: &[&str]) -> longhaul_mcp::ServerSpec {
    let program = packages().join(format!(
        "node_modules/@modelcontextprotocol/{package}/dist/index.js"
    ));
    let all: Vec<&str> = std::iter::once(program.to_str().unwrap())
        .chain(args.iter().copied())
        .collect();
    stdio(package.trim_start_matches("server-"), "node".as_ref(), &all)
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_says_who_it_is_and_what_it_has() {
    let (servers, _) = alone(node("server-everything", &["stdio"]));
    let checked = soon(servers.check("everything")).await.unwrap();
    assert!(checked.name.contains("everything"), "{checked:?}");
    assert!(checked.protocol.starts_with("202"), "{checked:?}");
    let has = |name: &str| {
        let wanted = format!("mcp:everything/{name}");
        checked
            .tools
            .iter()
            .any(|offered| offered.card.name.as_str() == wanted)
    };
    assert!(has("echo") && has("get-sum"), "{checked:#?}");
    assert_eq!(checked.notes, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_answers_in_words_in_structure_and_with_pictures() {
    let (servers, _) = alone(node("server-everything", &["stdio"]));
    let said = call(&servers, "echo", json!({ "message": "dear" })).await;
    assert_eq!(said.unwrap(), "Echo: dear");
    let said = call(&servers, "get-sum", json!({ "a": 2, "b": 3 })).await;
    assert!(said.unwrap().contains('5'));
    let tiny = tool(&servers, "get-tiny-image").await;
    let (around, _told) = around();
    let said = soon(tiny.call(json!({}), &around)).await.unwrap();
    let shown = said.content.iter().find_map(|part| match part {
        Part::Image(image) => Some(image),
        Part::Text(_) => None,
    });
    let shown = shown.expect("a picture");
    assert_eq!(shown.media_type, "image/png");
    let put_up = around.pictures.take();
    assert_eq!(put_up.len(), 1);
    assert_eq!(put_up[0].at, shown.blob);
    let said = call(
        &servers,
        "get-structured-content",
        json!({ "location": "Chicago" }),
    )
    .await;
    assert!(said.unwrap().contains("temperature"));
    let said = call(&servers, "get-resource-links", json!({ "count": 2 })).await;
    assert!(said.unwrap().contains("(link to "));
    let said = call(&servers, "get-sum", json!({ "a": "no", "b": 3 })).await;
    let failure = said.unwrap_err();
    assert!(!failure.is_unknown(), "{failure}");
    soon(servers.close()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_tells_how_far_it_is() {
    let (servers, _) = alone(node("server-everything", &["stdio"]));
    let long = tool(&servers, "trigger-long-running-operation").await;
    let (around, mut told) = around();
    let input = json!({ "duration": 1, "steps": 4 });
    let said = soon(long.call(input, &around)).await.unwrap();
    assert!(text(&said).contains("ompleted"), "{said:?}");
    let mut percents = Vec::new();
    while let Ok((percent, _)) = told.try_recv() {
        percents.extend(percent);
    }
    assert_eq!(percents, [25, 50, 75, 100]);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_read_and_written_within_their_folder() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().canonicalize().unwrap();
    std::fs::write(place.join("a.txt"), "hello").unwrap();
    let (servers, _) = alone(node("server-filesystem", &[place.to_str().unwrap()]));
    let classes = classes(&servers).await;
    assert_eq!(classes["mcp:filesystem/read_text_file"], EffectClass::Pure);
    assert_eq!(classes["mcp:filesystem/write_file"], EffectClass::Keyed);
    assert_eq!(classes["mcp:filesystem/edit_file"], EffectClass::Once);
    let path = place.join("a.txt");
    let said = call(&servers, "read_text_file", json!({ "path": path })).await;
    assert_eq!(said.unwrap(), "hello");
    let path = place.join("b.txt");
    let input = json!({ "path": path, "content": "written" });
    call(&servers, "write_file", input).await.unwrap();
    assert_eq!(std::fs::read_to_string(path).unwrap(), "written");
    let said = call(&servers, "read_text_file", json!({ "path": "/etc/passwd" })).await;
    let failure = said.unwrap_err().to_string();
    assert!(failure.contains("denied"), "{failure}");
    soon(servers.close()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_is_told() {
    let (servers, _) = alone(python(
        "time",
        &["-m", "mcp_server_time", "--local-timezone", "UTC"],
    ));
    let checked = soon(servers.check("time")).await.unwrap();
    assert!(checked.name.contains("time"), "{checked:?}");
    let said = call(
        &servers,
        "get_current_time",
        json!({ "timezone": "Europe/Vienna" }),
    )
    .await;
    assert!(said.unwrap().contains("Europe/Vienna"));
    soon(servers.close()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_is_looked_at_and_one_process_serves_all_runs() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap().to_owned();
    let made = std::process::Command::new("git")
        .args(["init", "--quiet", "--initial-branch=main", &place])
        .status();
    assert!(made.unwrap().success());
    let mut spec = python("git", &["-m", "mcp_server_git"]);
    if let Way::Stdio { cwd, .. } = &mut spec.way {
        *cwd = Some(folder.path().to_owned());
    }
    let (servers, _) = alone(spec);
    let said = call(&servers, "git_status", json!({ "repo_path": place })).await;
    assert!(said.unwrap().contains("main"));
    soon(servers.let_go(RUN)).await;
    let said = call(
        &servers,
        "git_branch",
        json!({ "repo_path": place, "branch_type": "local" }),
    );
    said.await.unwrap();
    soon(servers.close()).await;
    let late = soon(servers.tools("git", None, RUN)).await;
    assert!(late.unwrap_err().to_string().contains("is closed"));
}
