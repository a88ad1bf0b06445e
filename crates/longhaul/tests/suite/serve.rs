//! Tests of the server inside a program: the same API, with a key that the program creates.

use std::net::SocketAddr;

use longhaul::{Error, Role, Runtime, Task};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// Sends a request with this header and returns the whole response.
async fn get(address: SocketAddr, path: &str, header: &str) -> String {
    send(address, &format!("GET {path}"), header, "").await
}

async fn send(address: SocketAddr, method_and_path: &str, header: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let request = format!(
        "{method_and_path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{header}\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    response
}

#[tokio::test]
async fn a_caller_with_a_key_sees_the_program_s_runs_and_one_without_does_not() {
    let builder = Runtime::builder().store("sqlite::memory:");
    let builder = builder.handler("hello", |_, _| async move { Ok("Hello.") });
    let runtime = builder.open().await.unwrap();
    let worker = runtime.worker().spawn();
    let run = runtime.submit(Task::new("hello")).await.unwrap();
    run.wait().await.unwrap();
    let key = runtime.create_key("ci", Role::Viewer).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let path = format!("/v1/runs/{}", run.id());
    let (stop_sender, stop_receiver) = oneshot::channel::<()>();
    let serve_future = runtime.serve_until(listener, async {
        _ = stop_receiver.await;
    });
    let client = async {
        let refused = get(address, &path, "").await;
        assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
        let header = format!("Authorization: Bearer {key}\r\n");
        let response = get(address, &path, &header).await;
        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
        let (_, body) = response.split_once("\r\n\r\n").expect("a body");
        let run: Value = serde_json::from_str(body).expect(body);
        assert_eq!(run["output"]["text"], "Hello.", "{run}");
        stop_sender.send(()).unwrap();
    };
    let (serve_result, ()) = tokio::join!(serve_future, client);
    serve_result.unwrap();
    assert!(runtime.create_key("ci", Role::Viewer).await.is_err());
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn project_inboxes_are_served_and_a_handler_takes_no_model() {
    let folder = tempfile::tempdir().unwrap();
    let settings = "[inboxes.mail]\nagent = \"hello\"\n";
    std::fs::write(folder.path().join("longhaul.toml"), settings).unwrap();
    let script = longhaul::models::scripted("a", "replies: [{ text: 'I am a model.' }]");
    let builder = Runtime::builder()
        .store("sqlite::memory:")
        .project(folder.path())
        .model("script", script.unwrap())
        .handler("hello", |_, _| async move { Ok("Hello.") });
    let runtime = builder.open().await.unwrap();
    let key = runtime.create_key("ci", Role::Operator).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let client = async {
        let header = format!("Authorization: Bearer {key}\r\n");
        let response = send(address, "POST /v1/inboxes/mail/tasks", &header, r#"{"payload": 1}"#);
        let response = response.await;
        assert!(response.starts_with("HTTP/1.1 20"), "{response}");
        let body = r#"{"agent": "hello", "input": 1, "model": "script"}"#;
        let refused = send(address, "POST /v1/runs", &header, body).await;
        assert!(refused.starts_with("HTTP/1.1 4"), "{refused}");
        assert!(refused.contains("accepts no model"), "{refused}");
    };
    tokio::select! {
        result = runtime.serve(listener) => panic!("{result:?}"),
        () = client => {}
    }
}

/// Serves a project with these settings on a local port and returns the result.
async fn serve_and_stop(settings: &str) -> Result<(), Error> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("longhaul.toml"), settings).unwrap();
    let builder = Runtime::builder().store("sqlite::memory:");
    let runtime = builder.project(folder.path()).open().await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    runtime.serve_until(listener, async {}).await
}

#[tokio::test]
async fn a_project_that_relaxes_server_access_needs_trust() {
    let result = serve_and_stop("[server]\nopen_loopback = true\n").await;
    let message = result.unwrap_err().to_string();
    assert!(message.contains("[server]"), "{message}");
}

#[tokio::test]
async fn an_unused_listen_address_needs_no_trust() {
    let listen = "[server]\nlisten = \"0.0.0.0:4180\"\n";
    serve_and_stop(listen).await.unwrap();
    let result = serve_and_stop(&format!("{listen}hosts = [\"shop.example\"]\n")).await;
    let message = result.unwrap_err().to_string();
    assert!(message.contains("shop.example"), "{message}");
    assert!(!message.contains("0.0.0.0"), "{message}");
}
