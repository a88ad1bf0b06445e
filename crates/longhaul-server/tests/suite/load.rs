//! Load on one server: views that read long journals, connections that never finish a request,
//! and invalid keys.

use longhaul_core::time::Millis;
use serde_json::json;
use tokio::task::JoinSet;

use crate::suite::harness::client::{TestConnection, get, post};
use crate::suite::harness::{TestServer, server_with, server_with_gate};

/// Maximum numbers of concurrent views and transcripts.
const FOLDS_MAX: usize = 4;
const TRANSCRIPTS_MAX: usize = 2;

/// Waits until the server has processed everything that was sent before.
async fn wait_until_processed(server: &TestServer) {
    for _ in 0..5 {
        server.get_json("/v1/runs?brief=true").await;
    }
}

#[tokio::test]
async fn views_of_a_run_are_limited_in_number() {
    let server = server_with([]).with_sim_clock().open().await;
    let run = server.submit().await;
    for (views, views_max) in
        [(&["", "/why", "/steer"][..], FOLDS_MAX), (&["/transcript"], TRANSCRIPTS_MAX)]
    {
        let latch = server.reads.block();
        let send_requests = |count: usize| {
            let paths = views.iter().cycle().take(count);
            let send_requests = paths.map(|view| get(format!("/v1/runs/{run}{view}")));
            send_requests.collect::<Vec<_>>()
        };
        let mut connections = Vec::new();
        for send_requests in send_requests(40) {
            let mut connection = TestConnection::connect(server.address).await;
            connection.send(&send_requests.bytes(&server.host(), &server.key)).await;
            connections.push(connection);
        }
        latch.reached(views_max).await;
        // Requests that wait too long are asked to retry. Requests without a journal are
        // answered meanwhile. The total stays below the response timeout.
        let mut refused_count = 0;
        for _ in 0..2 {
            wait_until_processed(&server).await;
            server.clock().advance(Millis::from_secs(11));
            wait_until_processed(&server).await;
            for mut connection in std::mem::take(&mut connections) {
                if !connection.has_received() {
                    connections.push(connection);
                    continue;
                }
                let answer = connection.read_response().await.unwrap();
                assert_eq!((answer.status, &*answer.problem()), (503, "too_many_views"));
                assert_eq!(answer.header("retry-after"), Some("1"));
                refused_count += 1;
            }
            if refused_count == 40 - views_max {
                break;
            }
        }
        assert_eq!((latch.arrivals(), refused_count), (views_max, 40 - views_max), "{views:?}");
        latch.open();
        for mut connection in connections {
            assert_eq!(connection.read_response().await.unwrap().status, 200);
        }
        server.send(send_requests(1).remove(0)).await.expect(200);
    }
}

#[tokio::test]
async fn a_change_is_applied_even_if_its_result_can_not_be_read() {
    let server = server_with([]).with_sim_clock().open().await;
    let run = server.submit().await;
    let change = |action: &str| post(format!("/v1/runs/{run}/{action}"), &json!({}));
    let before = server.send(change("pause")).await.expect(200);
    assert_eq!(before["status"], "paused");
    let latch = server.reads.block();
    let mut connections = Vec::new();
    for _ in 0..FOLDS_MAX {
        let mut connection = TestConnection::connect(server.address).await;
        let request = get(format!("/v1/runs/{run}"));
        connection.send(&request.bytes(&server.host(), &server.key)).await;
        connections.push(connection);
    }
    latch.reached(FOLDS_MAX).await;
    let mut connection = TestConnection::connect(server.address).await;
    connection.send(&change("resume").bytes(&server.host(), &server.key)).await;
    for _ in 0..2 {
        wait_until_processed(&server).await;
        if !connection.has_received() {
            server.clock().advance(Millis::from_secs(11));
        }
    }
    let answer = connection.read_response().await.unwrap();
    assert_eq!((answer.status, &*answer.problem()), (503, "result_unavailable"));
    assert_eq!(latch.arrivals(), FOLDS_MAX);
    latch.open();
    for mut connection in connections {
        assert_eq!(connection.read_response().await.unwrap().status, 200);
    }
    let run_view = server.get_json(format!("/v1/runs/{run}")).await;
    assert_ne!(run_view["status"], "paused");
}

#[tokio::test]
async fn half_open_connections_do_not_block_others() {
    let server = server_with([]).options(|options| options.connections_max = 32).open().await;
    let host = server.host();
    let mut keep_alive = TestConnection::connect(server.address).await;
    let request = get("/v1/runs").bytes(&host, &server.key);
    keep_alive.send(&request).await;
    assert_eq!(keep_alive.read_response().await.unwrap().status, 200);
    let mut partial_connections = Vec::new();
    for _ in 0..200 {
        let mut connection = TestConnection::connect(server.address).await;
        connection.send(b"GET /livez HTTP/1.1\r\nhost: loc").await;
        partial_connections.push(connection);
    }
    for _ in 0..20 {
        server.assert_healthy().await;
    }
    // An authenticated connection is kept.
    keep_alive.send(&request).await;
    assert_eq!(keep_alive.read_response().await.unwrap().status, 200);
    // The oldest of the other connections were closed for newer ones.
    assert_eq!(partial_connections[0].read_all().await, b"");
}

/// Opens all connections before the first request is sent, as the clients of a proxy may do.
#[tokio::test]
async fn many_connections_from_one_address_with_a_key_all_get_responses() {
    let server = server_with([]).with_sim_clock().open().await;
    let mut connections = Vec::new();
    for _ in 0..400 {
        connections.push(TestConnection::connect(server.address).await);
    }
    let request = get("/v1/runs").bytes(&server.host(), &server.key);
    for connection in &mut connections {
        connection.send(&request).await;
    }
    for (index, mut connection) in connections.into_iter().enumerate() {
        let response = connection.read_response().await;
        assert_eq!(response.map(|response| response.status), Some(200), "{index}");
    }
}

#[tokio::test]
async fn more_clients_with_a_key_than_connections_wait_for_their_responses() {
    let server = server_with([])
        .with_sim_clock()
        .options(|options| options.connections_max = 64)
        .open()
        .await;
    let mut clients = JoinSet::new();
    for _ in 0..150 {
        let request = get("/v1/runs").bytes(&server.host(), &server.key);
        let address = server.address;
        clients.spawn(async move {
            let mut connection = TestConnection::connect(address).await;
            connection.send(&request).await;
            connection.read_response().await.map(|response| response.status)
        });
    }
    while let Some(status) = clients.join_next().await {
        assert_eq!(status.unwrap(), Some(200));
    }
}

#[tokio::test]
async fn silent_connections_do_not_block_a_client_with_a_key() {
    let server = server_with([]).options(|options| options.connections_max = 32).open().await;
    let mut silent_connections = Vec::new();
    for _ in 0..100 {
        silent_connections.push(TestConnection::connect(server.address).await);
    }
    for _ in 0..5 {
        server.send(get("/v1/runs")).await.expect(200);
    }
    assert_eq!(silent_connections[0].read_all().await, b"");
}

#[tokio::test]
async fn wrong_keys_do_not_block_a_valid_link() {
    let server = server_with_gate().start().await;
    let (_, gate) = server.submit_until_gate().await;
    let path = format!("/v1/gates/{}/links", gate["id"].as_str().unwrap());
    let response = server.send(post(path, &json!({ "recipient": "anna" }))).await;
    let url = response.expect(201)["url"].as_str().unwrap().to_owned();
    let link = url.split(&server.host()).nth(1).unwrap().to_owned();
    for _ in 0..20 {
        let mut status = 0;
        while status != 429 {
            let wrong_key_request = get("/v1/runs").with_key("lh_wrong");
            status = server.send(wrong_key_request).await.status;
        }
        assert_eq!(server.send(get(&link).without_key()).await.status, 200);
    }
    // An invalid link counts like an invalid key.
    let mut status = 0;
    while status != 429 {
        status = server.send(get("/a/none").without_key()).await.status;
        assert!(status == 404 || status == 429, "{status}");
    }
}

#[tokio::test]
async fn invalid_links_are_looked_up_at_a_limited_rate() {
    let server = server_with([]).open().await;
    let request = get("/a/none").without_key().bytes(&server.host(), "");
    let mut connection = TestConnection::connect(server.address).await;
    // On a slow machine the rate is not exhausted immediately.
    for _ in 0..20 {
        let before = server.auth.link_reads();
        for _ in 0..10 {
            connection.send(&request.repeat(100)).await;
            for _ in 0..100 {
                let status = connection.read_response().await.unwrap().status;
                assert!(status == 404 || status == 429, "{status}");
            }
        }
        if server.auth.link_reads() - before < 1_000 {
            return;
        }
    }
    panic!("every request read from the store");
}
