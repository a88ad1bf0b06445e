//! The files of a run's sandbox: when they are saved, and what the model learns about missing ones.

use super::harness::script::check;
use super::policies::plain;
use super::sandboxes::{OPENED, check_opened};

#[test]
fn files_are_saved_before_the_next_turn_and_before_the_end() {
    check_opened(
        r#"
        done t1.1 ok                    => tool.completed(t1.1)
        ? step                          => saveworkspace
        go                              =>
        pause                           => run.pause_requested
        ? step                          => advance
        resume                          => run.resumed
        ? step                          => saveworkspace
        box skipped                     => workspace.saved turn.started
        call read/pure@box              => turn.completed tool.started(t2.1)
        done t2.1 ok                    => tool.completed(t2.1) turn.started
        call shell/once@box             => turn.completed tool.started(t3.1)
        crash                           =>
        claim                           => run.claimed
        go                              => run.recovered tool.in_doubt(t3.1) gate.raised(indoubt) run.waiting(question) | waiting question
        no Leave it.                    => gate.answered | running
        claim                           => run.claimed
        go                              => tool.failed(t3.1) turn.started
        call finish/pure {"text": "ok"} => turn.completed tool.completed(t4.1) run.completed | completed
    "#,
    );
    let finish = format!(
        "{OPENED}done t1.1 ok => tool.completed(t1.1)\ncancel => run.cancel_requested\nbox saved => workspace.saved run.cancelled | cancelled"
    );
    check(plain(), &finish);
}

#[test]
fn a_retry_is_told_if_files_are_missing() {
    let messages = |save: &str| {
        let failed = check_opened(&format!(
            "done t1.1 ok => tool.completed(t1.1)\n\
             box {save} => workspace.saved turn.started\n\
             err invalid_request => turn.failed(invalid_request) run.failed(invalid_request) | failed"
        ));
        let mut retry = failed.retry();
        retry.play("claim");
        retry.play("go");
        let has_message = retry.play("? said").contains("The files were reset");
        (has_message, retry.run.control().workspace.commit.clone())
    };
    assert_eq!(messages("saved"), (false, Some("c0ffee".to_owned())));
    assert_eq!(messages("skipped"), (true, None));
}
