//! Makes the calls of a reply: side by side where the class allows, told in
//! the order that they ended, read by the model in its own.
//!
//! Never: begins what is not journaled, and never makes a call twice that must
//! not be.

use std::panic::AssertUnwindSafe;
use std::pin::pin;

use futures_util::FutureExt as _;
use longhaul_core::change::Blob;
use longhaul_core::event::tool::{Finding, ToolOutput, ToolVerified};
use longhaul_core::id::CallId;
use longhaul_core::port::redact::Redact;
use longhaul_core::time::{Clock, Millis};
use longhaul_run::Input;
use longhaul_run::input::{ToolDone, ToolEnd};
use longhaul_run::next::{Todo, Work};

use crate::clean::Cleaner;
use crate::drive::attend::{Cut, Ears, First};
use crate::drive::bound::bound;
use crate::drive::desk::Desk;
use crate::drive::hands::{Begun, CALL_TIMEOUT, Ended, Hands};
use crate::error::Error;
use crate::ledger::Told;

/// After the first of several calls has ended, the others have so long to be
/// told with it; slower ones are told later.
const LINGER: Millis = Millis(25);

/// So long may a call that must not be repeated go on after it should stop.
const GRACE: Millis = Millis::from_secs(10);

/// A look whether a call has happened may take this long.
const LOOK_TIMEOUT: Millis = Millis::from_secs(30);

/// Makes calls or looks after one. None: the run is not ours any more, or what
/// was begun may simply be begun again by the next driver.
pub(super) async fn act(desk: &mut Desk, todos: Vec<Todo>) -> Result<Option<Input>, Error> {
    if let Some(todo) = todos.iter().find(|todo| todo.work == Work::Verify) {
        return verify(desk, todo).await;
    }
    let since = desk.ports.clock.nanos();
    if !begin(desk, todos).await {
        return Ok(None);
    }
    let gathered = gather(desk).await?;
    // Before the ends: of a call that has ended nothing is taken any more.
    for word in desk.gauge.lasting() {
        let Ok(Told::On) = desk.ledger.note(word).await else {
            break;
        };
    }
    let Some(ended) = gathered.filter(|ended| !ended.is_empty()) else {
        return Ok(None);
    };
    let took = desk.ports.clock.nanos().saturating_sub(since) / 1_000_000;
    let told = told(ended, Millis(took), &*desk.ports.redact);
    Ok(Some(Input::ToolsDone(told)))
}

/// Begins every call that is not under way; whether anything may be begun.
async fn begin(desk: &mut Desk, todos: Vec<Todo>) -> bool {
    let Some(capsule) = desk.capsule.clone() else {
        return false;
    };
    let fresh: Vec<Todo> = todos
        .into_iter()
        .filter(|todo| !desk.hands.holds(todo.call))
        .collect();
    if !fresh.is_empty() && !desk.lease.may_begin().await {
        return !desk.hands.is_empty();
    }
    let epoch = desk.ledger.claimed().epoch;
    for todo in fresh {
        let mut around = capsule.around(desk.ledger.run(), todo.call, epoch);
        around.attempt = todo.attempt;
        around.progress = desk.gauge.reporter(todo.call, &desk.ports.redact);
        let equipped = capsule.tool(todo.tool.as_str());
        let tool = equipped.and_then(|equipped| equipped.tool.clone());
        let (Some(equipped), Some(tool)) = (equipped, tool) else {
            // It was there when the call was appraised; another build has less.
            desk.hands.refuse(
                todo.call,
                &format!("this worker has no tool `{}`", todo.tool),
            );
            continue;
        };
        let input = capsule.without_injected(equipped, todo.input.value());
        let begun = Begun {
            timeout: tool.timeout(&input).unwrap_or(CALL_TIMEOUT),
            tool,
            input,
            around,
            class: todo.class,
            clock: desk.ports.clock.clone(),
        };
        desk.hands.begin(begun, desk.gauge.begin(todo.call));
    }
    true
}

/// Waits until calls have ended, or should be cut off. None: let go.
async fn gather(desk: &mut Desk) -> Result<Option<Vec<Ended>>, Error> {
    let mut ears = Ears {
        hears_messages: true,
        gauge: Some((&desk.gauge, &*desk.ports.clock)),
        ..Ears::new(&mut desk.ledger, &desk.lease, &desk.stop)
    };
    let hands = &mut desk.hands;
    let first = ears.attend(pin!(hands.next())).await?;
    let cut = match first {
        First::Cut(cut) => cut,
        First::Done(None) => return Ok(None),
        First::Done(Some(first)) => {
            let mut ended = vec![first];
            ended.extend(wait(hands, &*desk.ports.clock, LINGER).await);
            return Ok(Some(ended));
        }
    };
    Ok(cut_off(desk, cut).await)
}

/// The calls that end within a while, until none is left.
async fn wait(hands: &mut Hands, clock: &dyn Clock, span: Millis) -> Vec<Ended> {
    let mut ended = Vec::new();
    if hands.is_empty() {
        return ended;
    }
    let mut over = clock.sleep(span);
    while !hands.is_empty() {
        tokio::select! {
            biased;
            next = hands.next() => ended.extend(next),
            () = over.as_mut() => break,
        }
    }
    ended
}

/// Stops the calls under way. What may be repeated is dropped, and so is what
/// ends for good when it is; the others have a while to end by themselves, and
/// are in doubt if they do not.
async fn cut_off(desk: &mut Desk, cut: Cut) -> Option<Vec<Ended>> {
    let hands = &mut desk.hands;
    let words = match cut {
        Cut::Cancelled => "stopped: the run was cancelled",
        Cut::Interrupted => "stopped: a person wrote",
        Cut::Stopping | Cut::Lost => "stopped: the worker had to go",
    };
    let mut ended: Vec<Ended> = match cut {
        Cut::Cancelled | Cut::Interrupted => {
            let stopped = hands.let_go(|way| way.may_repeat || way.stops_cleanly);
            stopped
                .into_iter()
                .map(|gone| gone.stopped(words))
                .collect()
        }
        // The next driver begins them again.
        Cut::Stopping | Cut::Lost => {
            hands.let_go(|way| way.may_repeat);
            Vec::new()
        }
    };
    ended.extend(wait(hands, &*desk.ports.clock, GRACE).await);
    ended.extend(hands.let_go(|_| true).into_iter().map(|gone| {
        if gone.stops_cleanly {
            gone.stopped(words)
        } else {
            end(gone.call, ToolEnd::Unknown, &format!("it was {words}"))
        }
    }));
    (!ended.is_empty()).then_some(ended)
}

fn end(call: CallId, end: ToolEnd, words: &str) -> Ended {
    let output = ToolOutput::text(words);
    Ended {
        call,
        end,
        output,
        pictures: Vec::new(),
    }
}

/// The ends as the heart is told of them. Calls side by side share their time,
/// which the first of them bears.
fn told(ended: Vec<Ended>, took: Millis, redact: &dyn Redact) -> Vec<ToolDone> {
    let times = std::iter::once(took).chain(std::iter::repeat(Millis::ZERO));
    let done = ended.into_iter().zip(times).map(|(ended, active)| {
        let output = Cleaner(redact).output(ended.output);
        let (output, blobs) = bound(ended.call, output, ended.pictures);
        ToolDone {
            call: ended.call,
            end: ended.end,
            output,
            active,
            blobs,
        }
    });
    done.collect()
}

/// Lets a tool look whether a call in doubt has happened. A look that is cut
/// off has changed nothing: whoever drives next looks again.
async fn verify(desk: &mut Desk, todo: &Todo) -> Result<Option<Input>, Error> {
    if !desk.lease.may_begin().await {
        return Ok(None);
    }
    let looking = pin!(look(desk, todo));
    let mut ears = Ears::new(&mut desk.ledger, &desk.lease, &desk.stop);
    Ok(match ears.attend(looking).await? {
        First::Done(seen) => Some(found(todo.call, seen, &*desk.ports.redact)),
        First::Cut(cut) => cut.after_look(),
    })
}

/// What a look found, and the pictures that belong to it.
type Seen = (Finding, Vec<Blob>);

/// What a look gave, shown in part where it is long.
fn found(call: CallId, (finding, pictures): Seen, redact: &dyn Redact) -> Input {
    let (finding, blobs) = match finding {
        Finding::Happened(output) => {
            let (output, blobs) = bound(call, Cleaner(redact).output(output), pictures);
            (Finding::Happened(output), blobs)
        }
        Finding::NotHappened | Finding::Unknown => (finding, Vec::new()),
    };
    Input::Verified(ToolVerified { call, finding }, blobs)
}

/// The look itself; it borrows nothing of the desk.
fn look(desk: &Desk, todo: &Todo) -> impl Future<Output = Seen> + use<> {
    let clock = desk.ports.clock.clone();
    let equipped = desk.capsule.as_ref().and_then(|capsule| {
        let equipped = capsule.tool(todo.tool.as_str())?;
        let around = capsule.around(desk.ledger.run(), todo.call, desk.ledger.claimed().epoch);
        let input = capsule.without_injected(equipped, todo.input.value());
        Some((equipped.tool.clone()?, input, around))
    });
    async move {
        let Some((tool, input, around)) = equipped else {
            return (Finding::Unknown, Vec::new());
        };
        let looking = AssertUnwindSafe(tool.verify(input, &around)).catch_unwind();
        let finding = tokio::select! {
            biased;
            found = looking => found.unwrap_or(Finding::Unknown),
            () = clock.sleep(LOOK_TIMEOUT) => Finding::Unknown,
        };
        (finding, around.pictures.take())
    }
}

impl Hands {
    /// Ends a call that can't even be begun.
    fn refuse(&mut self, call: CallId, why: &str) {
        self.end_at_once(end(call, ToolEnd::Failed, why));
    }
}
