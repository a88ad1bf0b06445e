//! Third-party stdio servers: tools, responses, shutdown.

use longhaul_core::message::Part;
use longhaul_core::policy::effect::EffectClass;
use longhaul_mcp::ServerTransport;
use serde_json::json;

use super::harness::{
    RUN, call, classes, packages, python_spec, single_server, stdio_spec, text, tool, tool_context,
    within_timeout,
};

fn node_spec(package: &str, args: &[&str]) -> longhaul_mcp::ServerSpec {
    let program =
        packages().join(format!("node_modules/@modelcontextprotocol/{package}/dist/index.js"));
    let node_args: Vec<&str> =
        std::iter::once(program.to_str().unwrap()).chain(args.iter().copied()).collect();
    stdio_spec(package.trim_start_matches("server-"), "node".as_ref(), &node_args)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_everything_server_reports_its_name_and_tools() {
    let (servers, _) = single_server(node_spec("server-everything", &["stdio"]));
    let report = within_timeout(servers.check_server("everything")).await.unwrap();
    assert!(report.name.contains("everything"), "{report:?}");
    assert!(report.protocol.starts_with("202"), "{report:?}");
    let has_tool = |name: &str| {
        let expected = format!("mcp:everything/{name}");
        report.tools.iter().any(|listed| listed.spec.name.as_str() == expected)
    };
    assert!(has_tool("echo") && has_tool("get-sum"), "{report:#?}");
    assert_eq!(report.notes, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_everything_server_returns_text_structured_content_and_images() {
    let (servers, _) = single_server(node_spec("server-everything", &["stdio"]));
    let result = call(&servers, "echo", json!({ "message": "dear" })).await;
    assert_eq!(result.unwrap(), "Echo: dear");
    let result = call(&servers, "get-sum", json!({ "a": 2, "b": 3 })).await;
    assert!(result.unwrap().contains('5'));
    let tiny = tool(&servers, "get-tiny-image").await;
    let (ctx, _progress) = tool_context();
    let result = within_timeout(tiny.call(json!({}), &ctx)).await.unwrap();
    let image_part = result.content.iter().find_map(|part| match part {
        Part::Image(image) => Some(image),
        Part::Text(_) => None,
    });
    let image_part = image_part.expect("no image");
    assert_eq!(image_part.media_type, "image/png");
    let images = ctx.images.drain();
    assert_eq!(images.len(), 1);
    assert_eq!(images[0].blob_ref, image_part.blob);
    let result = call(&servers, "get-structured-content", json!({ "location": "Chicago" })).await;
    assert!(result.unwrap().contains("temperature"));
    let result = call(&servers, "get-resource-links", json!({ "count": 2 })).await;
    assert!(result.unwrap().contains("(link to "));
    let result = call(&servers, "get-sum", json!({ "a": "no", "b": 3 })).await;
    let failure = result.unwrap_err();
    assert!(!failure.is_outcome_unknown(), "{failure}");
    within_timeout(servers.close_all_servers()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_everything_server_reports_progress() {
    let (servers, _) = single_server(node_spec("server-everything", &["stdio"]));
    let long = tool(&servers, "trigger-long-running-operation").await;
    let (ctx, mut progress) = tool_context();
    let input = json!({ "duration": 1, "steps": 4 });
    let output = within_timeout(long.call(input, &ctx)).await.unwrap();
    assert!(text(&output).contains("ompleted"), "{output:?}");
    let mut percents = Vec::new();
    while let Ok((percent, _)) = progress.try_recv() {
        percents.extend(percent);
    }
    assert_eq!(percents, [25, 50, 75, 100]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_filesystem_server_reads_and_writes_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    std::fs::write(root.join("a.txt"), "hello").unwrap();
    let (servers, _) = single_server(node_spec("server-filesystem", &[root.to_str().unwrap()]));
    let classes = classes(&servers).await;
    assert_eq!(classes["mcp:filesystem/read_text_file"], EffectClass::Pure);
    assert_eq!(classes["mcp:filesystem/write_file"], EffectClass::Keyed);
    assert_eq!(classes["mcp:filesystem/edit_file"], EffectClass::Once);
    let path = root.join("a.txt");
    let result = call(&servers, "read_text_file", json!({ "path": path })).await;
    assert_eq!(result.unwrap(), "hello");
    let path = root.join("b.txt");
    let input = json!({ "path": path, "content": "written" });
    call(&servers, "write_file", input).await.unwrap();
    assert_eq!(std::fs::read_to_string(path).unwrap(), "written");
    let result = call(&servers, "read_text_file", json!({ "path": "/etc/passwd" })).await;
    let failure = result.unwrap_err().to_string();
    assert!(failure.contains("denied"), "{failure}");
    within_timeout(servers.close_all_servers()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_server_returns_the_time() {
    let (servers, _) =
        single_server(python_spec("time", &["-m", "mcp_server_time", "--local-timezone", "UTC"]));
    let report = within_timeout(servers.check_server("time")).await.unwrap();
    assert!(report.name.contains("time"), "{report:?}");
    let result = call(&servers, "get_current_time", json!({ "timezone": "Europe/Vienna" })).await;
    assert!(result.unwrap().contains("Europe/Vienna"));
    within_timeout(servers.close_all_servers()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_git_server_reads_a_repository_for_all_runs() {
    let folder = tempfile::tempdir().unwrap();
    let repo_path = folder.path().to_str().unwrap().to_owned();
    let status = std::process::Command::new("git")
        .args(["init", "--quiet", "--initial-branch=main", &repo_path])
        .status();
    assert!(status.unwrap().success());
    let mut spec = python_spec("git", &["-m", "mcp_server_git"]);
    if let ServerTransport::Stdio { cwd, .. } = &mut spec.transport {
        *cwd = Some(folder.path().to_owned());
    }
    let (servers, _) = single_server(spec);
    let result = call(&servers, "git_status", json!({ "repo_path": repo_path })).await;
    assert!(result.unwrap().contains("main"));
    within_timeout(servers.close_servers_of_claim(RUN)).await;
    let result =
        call(&servers, "git_branch", json!({ "repo_path": repo_path, "branch_type": "local" }));
    result.await.unwrap();
    within_timeout(servers.close_all_servers()).await;
    let result = within_timeout(servers.server_tools("git", None, RUN)).await;
    assert!(result.unwrap_err().to_string().contains("is closed"));
}
