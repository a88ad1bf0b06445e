//! What an agent's file asks for beyond model and tools: looks before each turn, an
//! end to circles, a result that fits a schema, and calls that say how far they are.
//!
//! Never: a judgement of its own. What was seen and whether it fits is told.

use longhaul_core::event::turn::Fit;
use longhaul_core::message::StopReason;
use longhaul_core::policy::Policy;
use longhaul_core::raw::RawJson;
use longhaul_run::{Input, Run};

use super::policies::plain;
use super::world::World;
use super::world::script::check;
use super::world::talk::replied;

fn looking() -> Policy {
    Policy {
        looks_each_turn: true,
        ..Policy::default()
    }
}

#[test]
fn the_world_is_looked_at_before_each_turn_but_the_first() {
    check(
        looking(),
        r#"
        claim           => run.claimed | running
        see             => run.perceived turn.started
        call read/pure  => turn.completed tool.started(t1.1)
        done t1.1 ok    => tool.completed(t1.1)
        ? step          => look
        look It rains.  => turn.started(world)
        ? said          => It rains.
        ? step          => ask turn 2 try 1 max 4096
        err overloaded  => turn.failed(overloaded) run.waiting(retry) | waiting retry
        fire            => timer.fired | running
        claim           => run.claimed
        ? step          => goon
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
fn a_conversation_that_was_shortened_is_told_the_world_again() {
    // The turn that overflows was told: what is asked after it must be told anew.
    check(
        looking(),
        r#"
        claim                => run.claimed | running
        see                  => run.perceived turn.started
        call read/pure       => turn.completed tool.started(t1.1)
        done t1.1 ok         => tool.completed(t1.1)
        look It rains.       => turn.started(world)
        ? world              => told
        err context_overflow => turn.failed(context_overflow) turn.started
        sum 4                => memory.compacted
        ? world              => untold
        ? step               => look
        crash                =>
        claim                => run.claimed
        go                   => run.recovered
        ? step               => look
        look It rains.       => turn.started(world)
        ? said               => It rains.
        ? step               => ask turn 2 try 3 max 4096
        say Done.            => turn.completed run.completed(Done.) | completed
    "#,
    );
    // Also one that was told many turns ago, and has not changed since. What the
    // first turn sees stands in the prompt, and is never summed up.
    check(
        looking(),
        r#"
        claim                => run.claimed | running
        see                  => run.perceived turn.started
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
fn what_happens_while_somebody_looks_comes_first() {
    check(
        looking(),
        r#"
        claim            => run.claimed | running
        see              => run.perceived turn.started
        call read/pure   => turn.completed tool.started(t1.1)
        done t1.1 ok     => tool.completed(t1.1)
        ? step           => look
        crash            =>
        claim            => run.claimed
        go               => run.recovered
        ? step           => look
        steer after_batch => steer.queued
        look It rains.   => steer.delivered(after turn 1) turn.started(world)
        ? said           => It rains.
        call read/pure   => turn.completed tool.started(t2.1)
        done t2.1 ok     => tool.completed(t2.1)
        missing No eyes. => gate.raised(blocked) run.blocked | blocked blocked
        answer Mended.   => gate.answered | running
        claim            => run.claimed
        ? step           => look
        cancel enough    => run.cancel_requested
        look It snows.   => run.cancelled | cancelled
    "#,
    );
}

#[test]
fn a_run_that_turns_in_circles_is_told_and_then_stopped() {
    check(
        plain(),
        r#"
        claim                 => run.claimed | running
        see circles=4         => run.perceived turn.started
        call read/pure {"a":1} => turn.completed tool.started(t1.1)
        done t1.1 same        => tool.completed(t1.1) turn.started
        call read/pure {"a":1} => turn.completed tool.started(t2.1)
        done t2.1 same        => tool.completed(t2.1) turn.started(circles)
        err overloaded        => turn.failed(overloaded) run.waiting(retry) | waiting retry
        fire                  => timer.fired | running
        claim                 => run.claimed
        go                    => turn.started
        call read/pure {"a":1} => turn.completed tool.started(t3.1)
        done t3.1 same        => tool.completed(t3.1) turn.started
        call read/pure {"a":1} => turn.completed tool.started(t4.1)
        done t4.1 same        => tool.completed(t4.1) run.failed(stuck) | failed
        ? outcome             => stuck: the same call was made 4 times in a row with the same result
    "#,
    );
}

#[test]
fn another_call_another_result_or_a_wait_is_no_circle() {
    check(
        plain(),
        r#"
        claim                 => run.claimed | running
        see circles=4         => run.perceived turn.started
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
fn the_calls_of_a_reply_are_one_round_of_a_circle() {
    let pair = r#"call read/pure {"a":1} + read/pure {"a":2}"#;
    let script = r#"
        claim          => run.claimed | running
        see circles=4  => run.perceived turn.started
        PAIR           => turn.completed tool.started(t1.1) tool.started(t1.2)
        done t1.1 one  => tool.completed(t1.1)
        done t1.2 two  => tool.completed(t1.2) turn.started
        PAIR           => turn.completed tool.started(t2.1) tool.started(t2.2)
        done t2.2 two  => tool.completed(t2.2)
        done t2.1 one  => tool.completed(t2.1) turn.started(circles)
        PAIR           => turn.completed tool.started(t3.1) tool.started(t3.2)
        done t3.1 one  => tool.completed(t3.1)
        done t3.2 two  => tool.completed(t3.2) turn.started
        PAIR           => turn.completed tool.started(t4.1) tool.started(t4.2)
        done t4.1 one  => tool.completed(t4.1)
        done t4.2 two  => tool.completed(t4.2) run.failed(stuck) | failed
    "#;
    check(plain(), &script.replace("PAIR", pair));
}

#[test]
fn another_order_another_result_or_a_wait_in_a_reply_is_no_circle() {
    check(
        plain(),
        r#"
        claim          => run.claimed | running
        see circles=2  => run.perceived turn.started
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
fn many_at_once_are_told_before_they_are_stopped() {
    check(
        plain(),
        r#"
        claim                 => run.claimed | running
        see circles=2         => run.perceived turn.started
        call read/pure + read/pure => turn.completed tool.started(t1.1) tool.started(t1.2)
        done t1.1 same        => tool.completed(t1.1)
        done t1.2 same        => tool.completed(t1.2) turn.started
        call read/pure + read/pure => turn.completed tool.started(t2.1) tool.started(t2.2)
        done t2.1 same        => tool.completed(t2.1)
        done t2.2 same        => tool.completed(t2.2) turn.started(circles)
        steer after_batch     => steer.queued
        call read/pure + read/pure => turn.completed tool.started(t3.1) tool.started(t3.2)
        done t3.1 same        => tool.completed(t3.1)
        done t3.2 same        => tool.completed(t3.2) steer.delivered(after turn 3) turn.started
        say Done.             => turn.completed run.completed(Done.) | completed
    "#,
    );
}

#[test]
fn a_result_that_does_not_fit_is_sent_back_three_times() {
    check(
        plain(),
        r#"
        claim             => run.claimed | running
        see               => run.perceived turn.started
        judged no title   => turn.completed turn.started(output)
        ? said            => [longhaul] This does not end the run: no title. Call `finish` with an output that fits, or answer with nothing but the JSON.
        judged no title   => turn.completed turn.started(output)
        judged no title   => turn.completed turn.started(output)
        judged no title   => turn.completed run.failed(output_invalid) | failed
        ? outcome         => output_invalid: 4 final answers did not fit the output's schema; the last one: no title
    "#,
    );
    check(
        plain(),
        r#"
        claim             => run.claimed | running
        see               => run.perceived turn.started
        judged no title   => turn.completed turn.started(output)
        judged fits {"title":"A","summary":"An A.","confidence":87.5} => turn.completed run.completed(An A.) | completed
        ? outcome         => {"text":"An A.","data":{"title":"A","summary":"An A.","confidence":87.5},"confidence":88}
    "#,
    );
}

#[test]
fn a_text_that_fits_its_schema_is_data_whether_it_is_said_or_given() {
    let expect = r#"{"text":"A title","data":"A title"}"#;
    for (said, calls) in [
        ("\"A title\"", ""),
        ("", r#"finish/pure {"output": "A title"}"#),
    ] {
        let mut world = World::new(plain());
        world.play("claim");
        world.play("see");
        let Input::Replied(mut replied) = replied(said, calls, StopReason::EndTurn) else {
            panic!("a reply is replied");
        };
        replied.fit = Some(Fit::Fits(RawJson::parse("\"A title\"").unwrap()));
        world.tell(Input::Replied(replied));
        assert_eq!(world.shown("outcome"), expect, "{said}{calls}");
        assert_eq!(Run::replay(&world.entries).unwrap(), world.run);
    }
}

#[test]
fn answers_that_do_not_fit_are_counted_however_they_are_given() {
    // A call in between makes none of them undone, and a person's word neither.
    check(
        plain(),
        r#"
        claim             => run.claimed | running
        see               => run.perceived turn.started
        judged no title   => turn.completed turn.started(output)
        call read/pure    => turn.completed tool.started(t2.1)
        done t2.1 ok      => tool.completed(t2.1) turn.started
        judged no title   => turn.completed turn.started(output)
        steer after_batch Hurry. => steer.queued
        judged no title   => turn.completed steer.delivered(after turn 4) turn.started(output)
        call read/pure    => turn.completed tool.started(t5.1)
        done t5.1 ok      => tool.completed(t5.1) turn.started
        judged no author  => turn.completed run.failed(output_invalid) | failed
        ? outcome         => output_invalid: 4 final answers did not fit the output's schema; the last one: no author
    "#,
    );
    // Words and calls count together. What is wrong with a call is its result: it is
    // not said twice.
    check(
        plain(),
        r#"
        claim             => run.claimed | running
        see               => run.perceived turn.started
        call finish/bad   => turn.completed tool.failed(t1.1) turn.started
        ? said            => t1.1: ! there is no tool `finish`
        judged no title   => turn.completed turn.started(output)
        call finish/bad + finish/bad => turn.completed tool.failed(t3.1) tool.failed(t3.2) turn.started
        call read/pure + finish/bad => turn.completed tool.failed(t4.2) tool.started(t4.1)
        done t4.1 ok      => tool.completed(t4.1) run.failed(output_invalid) | failed
        ? outcome         => output_invalid: 4 final answers did not fit the output's schema; the last one: there is no tool `finish`
    "#,
    );
    // Half a call is no answer, and one that fits at last ends the run.
    check(
        plain(),
        r#"
        claim             => run.claimed | running
        see               => run.perceived turn.started
        call finish/bad   => turn.completed tool.failed(t1.1) turn.started
        call finish/bad   => turn.completed tool.failed(t2.1) turn.started
        call finish/bad   => turn.completed tool.failed(t3.1) turn.started
        cut finish/bad    => turn.completed tool.failed(t4.1) turn.started
        call finish/pure {"output": "A"} => turn.completed tool.completed(t5.1) run.completed(A) | completed
    "#,
    );
}

#[test]
fn a_call_says_how_far_it_is_as_long_as_it_goes_on() {
    check(
        plain(),
        r#"
        claim               => run.claimed | running
        see                 => run.perceived turn.started
        call send/once      => turn.completed tool.started(t1.1)
        progress t1.1 half  => tool.progress
        progress t1.2 half  => !no_such_call
        ? step              => make t1.1 send {}
        cancel              => run.cancel_requested
        progress t1.1 more  => tool.progress
        done t1.1 sent      => tool.completed(t1.1) run.cancelled | cancelled
    "#,
    );
}
