//! The calls of a reply: side by side or in order, once, and never half of one.
//!
//! Never: a start beside a call that must stand alone.

use super::policies::plain;
use super::world::script::check;

#[test]
fn pure_and_keyed_side_by_side_once_in_order() {
    check(
        plain(),
        r#"
        claim        => run.claimed | running
        see          => run.perceived turn.started
        call read/pure + write/keyed + shell/once {"command": "make"} + pty/session + read/pure => turn.completed tool.started(t1.1) tool.started(t1.2)
        done t1.2 ok => tool.completed(t1.2)
        done t1.1 ok => tool.completed(t1.1) tool.started(t1.3)
        ? step       => make t1.3 shell {"command": "make"}
        done t1.3 ok => tool.completed(t1.3) tool.started(t1.4)
        done t1.4 ok => tool.completed(t1.4) tool.started(t1.5)
        done t1.5 ok => tool.completed(t1.5) turn.started
        ? said       => t1.1: ok | t1.2: ok | t1.3: ok | t1.4: ok | t1.5: ok
    "#,
    );
}

#[test]
fn what_touches_the_same_goes_in_the_models_order() {
    check(
        plain(),
        r#"
        claim        => run.claimed | running
        see          => run.perceived turn.started
        call write/keyed {"command": "a"} + write/keyed {"command": "a"} + read/pure {"command": "a"} + write/keyed {"command": "b"} + read/pure {"command": "c"} => turn.completed tool.started(t1.1) tool.started(t1.4) tool.started(t1.5)
        done t1.1 ok => tool.completed(t1.1) tool.started(t1.2)
        done t1.2 ok => tool.completed(t1.2) tool.started(t1.3)
        done t1.4 ok => tool.completed(t1.4)
        done t1.5 ok => tool.completed(t1.5)
        done t1.3 ok => tool.completed(t1.3) turn.started
        call read/pure {"command": "a"} + read/pure {"command": "a"} + write/keyed {"command": "a"} => turn.completed tool.started(t2.1) tool.started(t2.2)
        done t2.2 ok => tool.completed(t2.2)
        done t2.1 ok => tool.completed(t2.1) tool.started(t2.3)
    "#,
    );
}

#[test]
fn a_write_that_was_cut_off_is_made_again_before_the_next() {
    check(
        plain(),
        r#"
        claim        => run.claimed | running
        see          => run.perceived turn.started
        call write/keyed {"command": "a"} + write/keyed {"command": "a"} => turn.completed tool.started(t1.1)
        crash        =>
        claim        => run.claimed
        go           => run.recovered tool.started(t1.1 again 2)
        done t1.1 ok => tool.completed(t1.1) tool.started(t1.2)
    "#,
    );
}

#[test]
fn eight_at_once() {
    check(
        plain(),
        r#"
        claim                                      => run.claimed | running
        see                                        => run.perceived turn.started
        call a + b + c + d + e + f + g + h + i + j => turn.completed tool.started(t1.1) tool.started(t1.2) tool.started(t1.3) tool.started(t1.4) tool.started(t1.5) tool.started(t1.6) tool.started(t1.7) tool.started(t1.8)
        done t1.5 ok                               => tool.completed(t1.5) tool.started(t1.9)
    "#,
    );
}

#[test]
fn a_failure_and_a_call_that_cannot_be_made_are_results() {
    check(
        plain(),
        r#"
        claim                         => run.claimed | running
        see                           => run.perceived turn.started
        call nonsense/bad + read/pure => turn.completed tool.failed(t1.1) tool.started(t1.2)
        fail t1.2 no such file        => tool.failed(t1.2) turn.started
        ? said                        => t1.1: ! there is no tool `nonsense` | t1.2: ! no such file
        call nonsense/bad             => turn.completed tool.failed(t2.1) turn.started
        ? said                        => t2.1: ! there is no tool `nonsense`
    "#,
    );
}

#[test]
fn a_reply_that_was_cut_off_runs_nothing() {
    check(
        plain(),
        r#"
        claim                                        => run.claimed | running
        see                                          => run.perceived turn.started
        cut shell/once {"command": "rm"} + read/pure => turn.completed tool.failed(t1.1) tool.failed(t1.2) turn.started
        ? said                                       => t1.1: ! not run: the reply was cut off by the token limit | t1.2: ! not run: the reply was cut off by the token limit
        cut                                          => turn.completed run.failed(reply_cut_off) | failed
        ? outcome                                    => reply_cut_off: the final reply was cut off by the token limit
    "#,
    );
}

#[test]
fn a_model_that_declines_ends_the_run() {
    check(
        plain(),
        r#"
        claim     => run.claimed | running
        see       => run.perceived turn.started
        refuse    => turn.completed run.failed(refused) | failed
        ? outcome => refused: the model declined: I won't.
    "#,
    );
    check(
        plain(),
        r#"
        claim                               => run.claimed | running
        see                                 => run.perceived turn.started
        refuse shell/once {"command": "rm"} => turn.completed run.failed(refused) | failed
    "#,
    );
}

#[test]
fn a_paused_turn_goes_back_as_it_is() {
    check(
        plain(),
        r#"
        claim     => run.claimed | running
        see       => run.perceived turn.started
        hold      => turn.completed turn.started
        ? said    => model: One moment.
        say Done. => turn.completed run.completed(Done.) | completed
    "#,
    );
}

#[test]
fn a_reply_without_words_is_not_sent_back() {
    check(
        super::policies::keep_open(),
        r#"
        claim                => run.claimed | running
        see                  => run.perceived turn.started
        say                  => turn.completed run.waiting(message) | waiting message
        steer follow_up And? => steer.queued | running
        claim                => run.claimed
        go                   => steer.delivered(after turn 1) turn.started
        ? step               => ask turn 2 try 1 max 4096
        say Oh.              => turn.completed run.waiting(message) | waiting message
    "#,
    );
}

#[test]
fn arguments_keep_their_bytes() {
    let world = check(
        plain(),
        r#"
        claim => run.claimed | running
        see   => run.perceived turn.started
        call write/pure {"zeta": 1, "alpha": [1.0, 2.50, 1e3], "path": "a/b\u00e9"} => turn.completed tool.started(t1.1)
    "#,
    );
    let longhaul_run::Step::UseTools(todos) = longhaul_run::next(&world.run, world.now) else {
        panic!("a call is to be made");
    };
    let arguments = r#"{"zeta": 1, "alpha": [1.0, 2.50, 1e3], "path": "a/b\u00e9"}"#;
    assert_eq!(todos[0].input.as_str(), arguments);
}

#[test]
fn a_reply_with_absurdly_many_calls_ends_the_run() {
    let calls = vec!["read/pure"; 1_025].join(" + ");
    check(
        plain(),
        &format!(
            r#"
        claim        => run.claimed | running
        see          => run.perceived turn.started
        call {calls} => turn.failed(invalid_request) run.failed(invalid_request) | failed
    "#
        ),
    );
}
