//! Load on one server: views that read long journals, connections that never finish a
//! request, and wrong keys.

use longhaul_core::time::Millis;
use serde_json::json;

use crate::suite::harness::client::{TestConnection, get, post};
use crate::suite::harness::{TestServer, server_with, server_with_gate};

/// The views that read a journal at the same time.
const FOLDS_MAX: usize = 4;
const TRANSCRIPTS_MAX: usize = 2;

/// Lets the server take in whatever was sent before.
async fn settle(server: &TestServer) {
    for _ in 0..5 {
        server.get_json("/v1/runs?brief=true").await;
    }
}

#[tokio::test]
async fn views_of_a_run_are_limited_in_number() {
    let server = server_with([]).with_sim_clock().open().await;
    let run = server.submit().await;
    for (views, most) in
        [(&["", "/why", "/steer"][..], FOLDS_MAX), (&["/transcript"], TRANSCRIPTS_MAX)]
    {
        let door = server.reads.block();
        let asked = |count: usize| {
            let paths = views.iter().cycle().take(count);
            let asked = paths.map(|view| get(format!("/v1/runs/{run}{view}")));
            asked.collect::<Vec<_>>()
        };
        let mut wires = Vec::new();
        for asked in asked(40) {
            let mut wire = TestConnection::connect(server.address).await;
            wire.send(&asked.bytes(&server.host(), &server.key)).await;
            wires.push(wire);
        }
        door.reached(most).await;
        // Requests that wait too long are told to come back; what needs no journal is
        // answered meanwhile. All together stays below the time limit of a request.
        let mut refused = 0;
        for _ in 0..2 {
            settle(&server).await;
            server.clock().advance(Millis::from_secs(11));
            settle(&server).await;
            for mut wire in std::mem::take(&mut wires) {
                if !wire.has_received() {
                    wires.push(wire);
                    continue;
                }
                let answer = wire.read_response().await.unwrap();
                assert_eq!((answer.status, &*answer.problem()), (503, "too_many_views"));
                assert_eq!(answer.header("retry-after"), Some("1"));
                refused += 1;
            }
            if refused == 40 - most {
                break;
            }
        }
        assert_eq!((door.arrivals(), refused), (most, 40 - most), "{views:?}");
        door.open();
        for mut wire in wires {
            assert_eq!(wire.read_response().await.unwrap().status, 200);
        }
        server.send(asked(1).remove(0)).await.expect(200);
    }
}

#[tokio::test]
async fn a_change_is_applied_even_if_its_result_can_not_be_read() {
    let server = server_with([]).with_sim_clock().open().await;
    let run = server.submit().await;
    let change = |word: &str| post(format!("/v1/runs/{run}/{word}"), &json!({}));
    let before = server.send(change("pause")).await.expect(200);
    assert_eq!(before["status"], "paused");
    let door = server.reads.block();
    let mut views = Vec::new();
    for _ in 0..FOLDS_MAX {
        let mut wire = TestConnection::connect(server.address).await;
        let asked = get(format!("/v1/runs/{run}"));
        wire.send(&asked.bytes(&server.host(), &server.key)).await;
        views.push(wire);
    }
    door.reached(FOLDS_MAX).await;
    let mut wire = TestConnection::connect(server.address).await;
    wire.send(&change("resume").bytes(&server.host(), &server.key)).await;
    for _ in 0..2 {
        settle(&server).await;
        if !wire.has_received() {
            server.clock().advance(Millis::from_secs(11));
        }
    }
    let answer = wire.read_response().await.unwrap();
    assert_eq!((answer.status, &*answer.problem()), (503, "committed_unread"));
    assert_eq!(door.arrivals(), FOLDS_MAX);
    door.open();
    for mut wire in views {
        assert_eq!(wire.read_response().await.unwrap().status, 200);
    }
    let now = server.get_json(format!("/v1/runs/{run}")).await;
    assert_ne!(now["status"], "paused");
}

#[tokio::test]
async fn half_open_connections_do_not_block_others() {
    let server = server_with([]).options(|options| options.connections_max = 32).open().await;
    let host = server.host();
    let mut kept = TestConnection::connect(server.address).await;
    let asked = get("/v1/runs").bytes(&host, &server.key);
    kept.send(&asked).await;
    assert_eq!(kept.read_response().await.unwrap().status, 200);
    let mut half = Vec::new();
    for _ in 0..200 {
        let mut wire = TestConnection::connect(server.address).await;
        wire.send(b"GET /livez HTTP/1.1\r\nhost: loc").await;
        half.push(wire);
    }
    for _ in 0..20 {
        server.assert_healthy().await;
    }
    // Whoever has shown a key keeps the connection.
    kept.send(&asked).await;
    assert_eq!(kept.read_response().await.unwrap().status, 200);
    // The oldest of the others were closed for the newer ones.
    assert_eq!(half[0].read_all().await, b"");
}

#[tokio::test]
async fn wrong_keys_do_not_block_a_valid_link() {
    let server = server_with_gate().start().await;
    let (_, gate) = server.at_gate().await;
    let path = format!("/v1/gates/{}/links", gate["id"].as_str().unwrap());
    let made = server.send(post(path, &json!({ "recipient": "anna" }))).await;
    let url = made.expect(201)["url"].as_str().unwrap().to_owned();
    let link = url.split(&server.host()).nth(1).unwrap().to_owned();
    for _ in 0..20 {
        let mut status = 0;
        while status != 429 {
            let wrong = get("/v1/runs").with_key("lh_wrong");
            status = server.send(wrong).await.status;
        }
        assert_eq!(server.send(get(&link).without_key()).await.status, 200);
    }
    // An invalid link is counted like a wrong key.
    let mut status = 0;
    while status != 429 {
        status = server.send(get("/a/none").without_key()).await.status;
        assert!(status == 404 || status == 429, "{status}");
    }
}

#[tokio::test]
async fn invalid_links_are_looked_up_at_a_limited_rate() {
    let server = server_with([]).open().await;
    let asked = get("/a/none").without_key().bytes(&server.host(), "");
    let mut wire = TestConnection::connect(server.address).await;
    // On a slow machine the rate is not used up at once.
    for _ in 0..20 {
        let before = server.auth.link_reads();
        for _ in 0..10 {
            wire.send(&asked.repeat(100)).await;
            for _ in 0..100 {
                let status = wire.read_response().await.unwrap().status;
                assert!(status == 404 || status == 429, "{status}");
            }
        }
        if server.auth.link_reads() - before < 1_000 {
            return;
        }
    }
    panic!("every request costs a read of the store");
}
