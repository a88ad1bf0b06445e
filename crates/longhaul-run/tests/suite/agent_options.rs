//! Optional features of agents: perception refresh before each turn, the loop guard, output
//! schemas, and progress reports of calls.

use longhaul_core::event::turn::OutputCheckResult;
use longhaul_core::message::StopReason;
use longhaul_core::policy::RunPolicy;
use longhaul_core::raw::RawJson;
use longhaul_run::{Run, RunInput};

use super::harness::TestRun;
use super::harness::inputs::replied;
use super::harness::script::check;
use super::policies::plain;

fn perceiving_each_turn() -> RunPolicy {
    RunPolicy { refresh_perception_each_turn: true, ..RunPolicy::default() }
}

#[test]
fn perception_is_refreshed_before_each_turn_but_the_first() {
    check(
        perceiving_each_turn(),
        r#"
        claim           => run.claimed | running
        see             => run.prepared turn.started
        call read/pure  => turn.completed tool.started(t1.1)
        done t1.1 ok    => tool.completed(t1.1)
        ? step          => refreshperception
        look It rains.  => turn.started(world)
        ? said          => It rains.
        ? step          => ask turn 2 try 1 max 4096
        err overloaded  => turn.failed(overloaded) run.waiting(retry) | waiting retry
        fire            => timer.fired | running
        claim           => run.claimed
        ? step          => advance
        go              => turn.started
        ? step          => ask turn 2 try 2 max 4096
        call read/pure  => turn.completed tool.started(t2.1)
        done t2.1 ok    => tool.completed(t2.1)
        look            => turn.started
        ? said          => t2.1: ok
        say Done.       => turn.completed run.completed(Done.) | completed
    "#,
    );
}

#[test]
fn the_world_is_repeated_after_compaction() {
    // The refreshed state was part of the turn that overflows, so the next request must contain it again.
    check(
        perceiving_each_turn(),
        r#"
        claim                => run.claimed | running
        see                  => run.prepared turn.started
        call read/pure       => turn.completed tool.started(t1.1)
        done t1.1 ok         => tool.completed(t1.1)
        look It rains.       => turn.started(world)
        ? world              => told
        err context_overflow => turn.failed(context_overflow) turn.started
        sum 4                => memory.compacted
        ? world              => untold
        ? step               => refreshperception
        crash                =>
        claim                => run.claimed
        go                   => run.recovered
        ? step               => refreshperception
        look It rains.       => turn.started(world)
        ? said               => It rains.
        ? step               => ask turn 2 try 3 max 4096
        say Done.            => turn.completed run.completed(Done.) | completed
    "#,
    );
    // Also if the state was sent many turns ago and has not changed since. The state that the first
    // turn sees is part of the prompt and never summarized.
    check(
        perceiving_each_turn(),
        r#"
        claim                => run.claimed | running
        see                  => run.prepared turn.started
        err context_overflow => turn.failed(context_overflow) turn.started
        sum 1                => memory.compacted turn.started
        call read/pure       => turn.completed tool.started(t1.1)
        done t1.1 ok         => tool.completed(t1.1)
        look It rains.       => turn.started(world)
        call read/pure       => turn.completed tool.started(t2.1)
        done t2.1 ok         => tool.completed(t2.1)
        look                 => turn.started
        call read/pure       => turn.completed tool.started(t3.1)
        done t3.1 ok         => tool.completed(t3.1)
        ? world              => told
        look                 => turn.started
        err context_overflow => turn.failed(context_overflow) turn.started
        sum 8                => memory.compacted
        ? world              => untold
        look It rains.       => turn.started(world)
        ? world              => told
    "#,
    );
}

#[test]
fn events_during_a_perception_refresh_come_first() {
    check(
        perceiving_each_turn(),
        r#"
        claim            => run.claimed | running
        see              => run.prepared turn.started
        call read/pure   => turn.completed tool.started(t1.1)
        done t1.1 ok     => tool.completed(t1.1)
        ? step           => refreshperception
        crash            =>
        claim            => run.claimed
        go               => run.recovered
        ? step           => refreshperception
        steer after_batch => steer.queued
        look It rains.   => steer.delivered(after turn 1) turn.started(world)
        ? said           => It rains.
        call read/pure   => turn.completed tool.started(t2.1)
        done t2.1 ok     => tool.completed(t2.1)
        missing No file. => gate.raised(blocked) run.blocked | blocked blocked
        answer Fixed.    => gate.answered | running
        claim            => run.claimed
        ? step           => refreshperception
        cancel enough    => run.cancel_requested
        look It snows.   => run.cancelled | cancelled
    "#,
    );
}

#[test]
fn a_looping_run_is_warned_and_then_stopped() {
    check(
        plain(),
        r#"
        claim                 => run.claimed | running
        see identical_calls=4 => run.prepared turn.started
        call read/pure {"a":1} => turn.completed tool.started(t1.1)
        done t1.1 same        => tool.completed(t1.1) turn.started
        call read/pure {"a":1} => turn.completed tool.started(t2.1)
        done t2.1 same        => tool.completed(t2.1) turn.started(loop)
        err overloaded        => turn.failed(overloaded) run.waiting(retry) | waiting retry
        fire                  => timer.fired | running
        claim                 => run.claimed
        go                    => turn.started
        call read/pure {"a":1} => turn.completed tool.started(t3.1)
        done t3.1 same        => tool.completed(t3.1) turn.started
        call read/pure {"a":1} => turn.completed tool.started(t4.1)
        done t4.1 same        => tool.completed(t4.1) run.failed(loop_detected) | failed
        ? outcome             => loop_detected: the same call was made 4 times in a row with the same result
    "#,
    );
}

#[test]
fn a_cycle_of_known_calls_is_warned_and_then_stopped() {
    check(
        plain(),
        r#"
        claim             => run.claimed | running
        see no_progress=4 => run.prepared turn.started
        call read/pure {"a":1} => turn.completed tool.started(t1.1)
        done t1.1 one     => tool.completed(t1.1) turn.started
        call read/pure {"a":2} => turn.completed tool.started(t2.1)
        done t2.1 two     => tool.completed(t2.1) turn.started
        call read/pure {"a":1} => turn.completed tool.started(t3.1)
        done t3.1 one     => tool.completed(t3.1) turn.started
        call read/pure {"a":2} => turn.completed tool.started(t4.1)
        done t4.1 two     => tool.completed(t4.1) turn.started(noprogress)
        call read/pure {"a":1} => turn.completed tool.started(t5.1)
        done t5.1 one     => tool.completed(t5.1) turn.started
        call read/pure {"a":2} => turn.completed tool.started(t6.1)
        done t6.1 two     => tool.completed(t6.1) run.failed(no_progress) | failed
        ? outcome         => no_progress: 4 turns in a row had no new call and no new result
    "#,
    );
    // A new result, a wait and a message of a person are progress.
    check(
        plain(),
        r#"
        claim             => run.claimed | running
        see no_progress=2 => run.prepared turn.started
        call read/pure    => turn.completed tool.started(t1.1)
        done t1.1 one     => tool.completed(t1.1) turn.started
        call read/pure    => turn.completed tool.started(t2.1)
        done t2.1 one     => tool.completed(t2.1) turn.started(noprogress)
        call read/pure    => turn.completed tool.started(t3.1)
        done t3.1 new     => tool.completed(t3.1) turn.started
        call wait/pure {"for": "1s"} => turn.completed tool.started(t4.1) run.waiting(timer) | waiting timer
        fire              => timer.fired | running
        claim             => run.claimed
        go                => tool.completed(t4.1) turn.started
        call read/pure    => turn.completed tool.started(t5.1)
        done t5.1 new     => tool.completed(t5.1) turn.started(noprogress)
        steer after_batch => steer.queued
        call read/pure    => turn.completed tool.started(t6.1)
        done t6.1 new     => tool.completed(t6.1) steer.delivered(after turn 6) turn.started
    "#,
    );
}

#[test]
fn a_repeated_text_is_warned_and_then_stopped() {
    let text = "I will look at the file again, because the last result did not tell me what I needed to \
        know about it.";
    let script = r#"
        claim               => run.claimed | running
        see repeated_text=4 => run.prepared turn.started
        continue TEXT       => turn.completed turn.started
        continue TEXT       => turn.completed turn.started(repeatedtext)
        continue Next.      => turn.completed turn.started
        continue Next.      => turn.completed turn.started
        continue Next.      => turn.completed turn.started
        continue TEXT       => turn.completed turn.started
        continue TEXT       => turn.completed turn.started(repeatedtext)
        continue TEXT       => turn.completed turn.started
        continue TEXT       => turn.completed run.failed(repeated_text) | failed
        ? outcome           => repeated_text: 4 replies in a row had the same text
    "#;
    check(plain(), &script.replace("TEXT", text));
}

#[test]
fn a_different_call_or_result_or_a_wait_resets_the_loop_guard() {
    check(
        plain(),
        r#"
        claim                 => run.claimed | running
        see identical_calls=4 => run.prepared turn.started
        call read/pure        => turn.completed tool.started(t1.1)
        done t1.1 same        => tool.completed(t1.1) turn.started
        call read/pure        => turn.completed tool.started(t2.1)
        done t2.1 other       => tool.completed(t2.1) turn.started
        call read/pure {"a":1} => turn.completed tool.started(t3.1)
        done t3.1 other       => tool.completed(t3.1) turn.started
        call wait/pure {"for": "1s"} => turn.completed tool.started(t4.1) run.waiting(timer) | waiting timer
        fire                  => timer.fired | running
        claim                 => run.claimed
        go                    => tool.completed(t4.1) turn.started
        call read/pure {"a":1} => turn.completed tool.started(t5.1)
        done t5.1 other       => tool.completed(t5.1) turn.started
        say Done.             => turn.completed run.completed(Done.) | completed
    "#,
    );
}

#[test]
fn the_calls_of_one_reply_count_as_one_loop_round() {
    let pair = r#"call read/pure {"a":1} + read/pure {"a":2}"#;
    let script = r#"
        claim          => run.claimed | running
        see identical_calls=4 => run.prepared turn.started
        PAIR           => turn.completed tool.started(t1.1) tool.started(t1.2)
        done t1.1 one  => tool.completed(t1.1)
        done t1.2 two  => tool.completed(t1.2) turn.started
        PAIR           => turn.completed tool.started(t2.1) tool.started(t2.2)
        done t2.2 two  => tool.completed(t2.2)
        done t2.1 one  => tool.completed(t2.1) turn.started(loop)
        PAIR           => turn.completed tool.started(t3.1) tool.started(t3.2)
        done t3.1 one  => tool.completed(t3.1)
        done t3.2 two  => tool.completed(t3.2) turn.started
        PAIR           => turn.completed tool.started(t4.1) tool.started(t4.2)
        done t4.1 one  => tool.completed(t4.1)
        done t4.2 two  => tool.completed(t4.2) run.failed(loop_detected) | failed
    "#;
    check(plain(), &script.replace("PAIR", pair));
}

#[test]
fn a_different_order_or_result_in_a_reply_resets_the_loop_guard() {
    check(
        plain(),
        r#"
        claim          => run.claimed | running
        see identical_calls=2 => run.prepared turn.started
        call read/pure {"a":1} + read/pure {"a":2} => turn.completed tool.started(t1.1) tool.started(t1.2)
        done t1.1 one  => tool.completed(t1.1)
        done t1.2 two  => tool.completed(t1.2) turn.started
        call read/pure {"a":2} + read/pure {"a":1} => turn.completed tool.started(t2.1) tool.started(t2.2)
        done t2.1 two  => tool.completed(t2.1)
        done t2.2 one  => tool.completed(t2.2) turn.started
        call read/pure {"a":2} + read/pure {"a":1} => turn.completed tool.started(t3.1) tool.started(t3.2)
        done t3.1 new  => tool.completed(t3.1)
        done t3.2 one  => tool.completed(t3.2) turn.started
        call read/pure {"a":2} => turn.completed tool.started(t4.1)
        done t4.1 two  => tool.completed(t4.1) turn.started
        call wait/pure {"for": "1s"} + read/pure {"a":2} => turn.completed tool.started(t5.1) tool.started(t5.2)
        done t5.2 two  => tool.completed(t5.2) run.waiting(timer) | waiting timer
        fire           => timer.fired | running
        claim          => run.claimed
        go             => tool.completed(t5.1) turn.started
        call read/pure {"a":2} => turn.completed tool.started(t6.1)
        done t6.1 two  => tool.completed(t6.1) turn.started
    "#,
    );
}

#[test]
fn a_loop_within_one_reply_is_warned_before_it_is_stopped() {
    check(
        plain(),
        r#"
        claim                 => run.claimed | running
        see identical_calls=2 => run.prepared turn.started
        call read/pure + read/pure => turn.completed tool.started(t1.1) tool.started(t1.2)
        done t1.1 same        => tool.completed(t1.1)
        done t1.2 same        => tool.completed(t1.2) turn.started
        call read/pure + read/pure => turn.completed tool.started(t2.1) tool.started(t2.2)
        done t2.1 same        => tool.completed(t2.1)
        done t2.2 same        => tool.completed(t2.2) turn.started(loop)
        steer after_batch     => steer.queued
        call read/pure + read/pure => turn.completed tool.started(t3.1) tool.started(t3.2)
        done t3.1 same        => tool.completed(t3.1)
        done t3.2 same        => tool.completed(t3.2) steer.delivered(after turn 3) turn.started
        say Done.             => turn.completed run.completed(Done.) | completed
    "#,
    );
}

#[test]
fn invalid_output_is_sent_back_three_times() {
    check(
        plain(),
        r#"
        claim             => run.claimed | running
        see               => run.prepared turn.started
        checked no title  => turn.completed turn.started(output)
        ? said            => [longhaul] This does not end the run: no title. Call `finish` with a valid output, or reply with only the JSON.
        checked no title  => turn.completed turn.started(output)
        checked no title  => turn.completed turn.started(output)
        checked no title  => turn.completed run.failed(output_invalid) | failed
        ? outcome         => output_invalid: 4 final answers did not match the output schema; the last problem: no title
    "#,
    );
    check(
        plain(),
        r#"
        claim             => run.claimed | running
        see               => run.prepared turn.started
        checked no title  => turn.completed turn.started(output)
        checked valid {"title":"A","summary":"An A.","confidence":87.5} => turn.completed run.completed(An A.) | completed
        ? outcome         => {"text":"An A.","data":{"title":"A","summary":"An A.","confidence":87.5},"confidence":88}
    "#,
    );
}

#[test]
fn valid_output_is_data_by_final_text_and_by_finish() {
    let expect = r#"{"text":"A title","data":"A title"}"#;
    for (reply, calls) in [("\"A title\"", ""), ("", r#"finish/pure {"output": "A title"}"#)] {
        let mut test_run = TestRun::new(plain());
        test_run.play("claim");
        test_run.play("see");
        let RunInput::ModelReplied(mut replied) = replied(reply, calls, StopReason::EndTurn) else {
            panic!("unexpected input");
        };
        replied.output_check =
            Some(OutputCheckResult::Valid(RawJson::parse("\"A title\"").unwrap()));
        test_run.send_input(RunInput::ModelReplied(replied));
        assert_eq!(test_run.show("outcome"), expect, "{reply}{calls}");
        assert_eq!(Run::replay(&test_run.entries).unwrap(), test_run.run);
    }
}

#[test]
fn invalid_outputs_are_counted_by_final_text_and_by_finish() {
    // Neither a call in between nor a message resets the count.
    check(
        plain(),
        r#"
        claim             => run.claimed | running
        see               => run.prepared turn.started
        checked no title  => turn.completed turn.started(output)
        call read/pure    => turn.completed tool.started(t2.1)
        done t2.1 ok      => tool.completed(t2.1) turn.started
        checked no title  => turn.completed turn.started(output)
        steer after_batch Hurry. => steer.queued
        checked no title  => turn.completed steer.delivered(after turn 4) turn.started(output)
        call read/pure    => turn.completed tool.started(t5.1)
        done t5.1 ok      => tool.completed(t5.1) turn.started
        checked no author => turn.completed run.failed(output_invalid) | failed
        ? outcome         => output_invalid: 4 final answers did not match the output schema; the last problem: no author
    "#,
    );
    // Text answers and `finish` calls are counted together. The problem of a call is its result and is
    // not reported twice.
    check(
        plain(),
        r#"
        claim             => run.claimed | running
        see               => run.prepared turn.started
        call finish/bad   => turn.completed tool.failed(t1.1) turn.started
        ? said            => t1.1: ! there is no tool `finish`
        checked no title  => turn.completed turn.started(output)
        call finish/bad + finish/bad => turn.completed tool.failed(t3.1) tool.failed(t3.2) turn.started
        call read/pure + finish/bad => turn.completed tool.failed(t4.2) tool.started(t4.1)
        done t4.1 ok      => tool.completed(t4.1) run.failed(output_invalid) | failed
        ? outcome         => output_invalid: 4 final answers did not match the output schema; the last problem: there is no tool `finish`
    "#,
    );
    // A truncated call does not count as an answer. A valid answer ends the run.
    check(
        plain(),
        r#"
        claim             => run.claimed | running
        see               => run.prepared turn.started
        call finish/bad   => turn.completed tool.failed(t1.1) turn.started
        call finish/bad   => turn.completed tool.failed(t2.1) turn.started
        call finish/bad   => turn.completed tool.failed(t3.1) turn.started
        cut finish/bad    => turn.completed tool.failed(t4.1) turn.started
        call finish/pure {"output": "A"} => turn.completed tool.completed(t5.1) run.completed(A) | completed
    "#,
    );
}

#[test]
fn progress_is_accepted_only_while_the_call_runs() {
    check(
        plain(),
        r#"
        claim               => run.claimed | running
        see                 => run.prepared turn.started
        call send/once      => turn.completed tool.started(t1.1)
        progress t1.1 half  => tool.progress
        progress t1.2 half  => !call_not_running
        ? step              => run t1.1 send {}
        cancel              => run.cancel_requested
        progress t1.1 more  => tool.progress
        done t1.1 sent      => tool.completed(t1.1) run.cancelled | cancelled
    "#,
    );
}
