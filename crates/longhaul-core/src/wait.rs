//! What a parked run waits for: one table with everything that is known about each reason to wait.
//!
//! A new reason is one row of this table, and the code that wakes the run.

use serde::{Deserialize, Serialize};

use crate::failure::FailureClass;
use crate::id::{GateId, RunId};
use crate::policy::budget::BudgetCap;
use crate::policy::effect_key::EffectKeyHolder;
use crate::time::Timestamp;

/// A row of the table of waits. The texts name facts in braces, which [`fill_in`] inserts: the data
/// of the wait under its name in JSON, and what the caller knows.
#[derive(Debug, Clone, Copy)]
pub struct WaitRow {
    /// Name of the reason in the API and in the store, such as `approval`.
    pub code: &'static str,
    /// What the store checks to find parked runs that nothing can wake.
    pub waker: Waker,
    pub ended_by: WaitEnd,
    /// Text in a list of events. Empty if another event already says so.
    pub event: &'static str,
    /// Sentence that explains the wait.
    pub sentence: &'static str,
    /// Command that helps. Empty if none is needed.
    pub command: &'static str,
}

/// Row of the store that will wake a parked run. A run without this row is stuck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waker {
    /// An open gate of the run.
    Gate,
    /// A timer of the run.
    Timer,
    /// A place in the queue for sandboxes, or a timer of the run.
    SandboxQueue,
    /// A place in the queue for the budget of the tree, and a hold to be released.
    BudgetQueue,
    /// A call that holds the effect key.
    EffectKey,
    /// No row that could be missing: a person, another run or the lane wakes the run.
    Unchecked,
}

/// Who ends a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitEnd {
    /// A person who answers, writes or raises a cap.
    Person,
    /// A program that reports an event.
    Program,
    /// The end of a long period, or a person.
    Period,
    /// The provider, perhaps after hours.
    Provider,
    /// A run that the run has started.
    Child,
    /// A run outside its tree.
    OtherRun,
    /// The runtime, soon or at a time that is known.
    Runtime,
}

macro_rules! waits {
    (
        parked {$(
            $(#[$doc:meta])*
            $variant:ident $(($field:ident: $data:ty))? $code:literal: $waker:ident, $end:ident,
            $event:literal, $sentence:literal, $command:literal;
        )+}
        queued {$(
            $(#[$queued_doc:meta])*
            $queued:ident $queued_code:literal: $queued_waker:ident, $queued_sentence:literal;
        )+}
    ) => {
        /// What a parked run waits for. The times in the variants only describe the wait: if it ends
        /// at a certain time, a timer in the store wakes the run.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum WaitReason {
            $($(#[$doc])* $variant $(($data))?,)+
        }

        /// A reason to wait without its data.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum WaitKind {
            $($(#[$doc])* $variant,)+
            $($(#[$queued_doc])* $queued,)+
        }

        impl WaitReason {
            /// Returns the reason without its data.
            pub const fn kind(&self) -> WaitKind {
                match self { $(Self::$variant { .. } => WaitKind::$variant,)+ }
            }
        }

        impl WaitKind {
            pub const ALL: &[Self] = &[$(Self::$variant,)+ $(Self::$queued,)+];

            /// Returns everything that is known about this reason to wait.
            pub const fn row(self) -> &'static WaitRow {
                match self {
                    $(Self::$variant => &WaitRow {
                        code: $code,
                        waker: Waker::$waker,
                        ended_by: WaitEnd::$end,
                        event: $event,
                        sentence: $sentence,
                        command: $command,
                    },)+
                    $(Self::$queued => &WaitRow {
                        code: $queued_code,
                        waker: Waker::$queued_waker,
                        ended_by: WaitEnd::Runtime,
                        event: "",
                        sentence: $queued_sentence,
                        command: "",
                    },)+
                }
            }
        }
    };
}

waits! {
    parked {
        /// The run waits for the approval of calls or of its result.
        Approval(gates: Vec<GateId>) "approval": Gate, Person, "",
            "The run waits for {approvals}{question}.", "{approve}";
        /// The run waits for the answer to a question.
        Question(gate: GateId) "question": Gate, Person, "",
            "The run waits for an answer{question}.", "{answer}";
        /// The run waits for a signal from a program.
        Signal(gate: GateId) "signal": Gate, Program, "for a signal",
            "The run waits for a signal{question}.", "longhaul gates show {gate}";
        /// The run waits for help, because the agent is blocked.
        Blocked(gate: GateId) "blocked": Gate, Person, "",
            "The run is blocked{question}.", "{unblock}";
        /// The run waits until a time that the agent chose.
        Timer(until: Timestamp) "timer": Timer, Runtime, "until {until}",
            "The run waits until {until}.", "longhaul steer {id} TEXT";
        /// The run waits for the end of this child run.
        Child(child: RunId) "child": Unchecked, Child, "for {child}",
            "The run waits for {child}{children}.", "longhaul why {child}";
        /// The run waits for the result of a tool call and asks the tool again at this time.
        Tool(until: Timestamp) "tool": Timer, Runtime,
            "for the result of a tool call; the tool is asked again at {until}",
            "The run waits for the result of {tool}, which is asked for again at {until}.",
            "longhaul cancel {id}";
        /// The run waits until a provider's rate limit ends.
        RateLimit(until: Timestamp) "rate_limit": Timer, Runtime,
            "rate limited by the provider until {until}",
            "The provider limits the request rate; the next attempt is at {until}.",
            "longhaul resume {id}";
        /// The run waits until a call or the run itself is retried.
        Retry(until: Timestamp) "retry": Timer, Runtime, "retry at {until}",
            "The {cause}; the next attempt is at {until}.", "longhaul resume {id}";
        /// The run waits for a provider that is unavailable.
        Outage(wait: OutageWait) "outage": Timer, Provider,
            "for the provider, which is unavailable ({class}); next attempt at {until}",
            "The provider is unavailable ({class}) since {since}; the next attempt is at {until}, the \
             last one at {end}.",
            "longhaul resume {id}";
        /// The run waits until one more sandbox may run at its sandbox provider.
        SandboxSlot "sandbox_slot": SandboxQueue, Runtime, "for a free sandbox",
            "The run waits for a free sandbox.", "longhaul sandboxes";
        /// The run waits for a higher budget cap.
        Budget(cap: BudgetCap) "budget": Unchecked, Person, "for more budget",
            "The run's budget of {cap}{tree} is used up.", "{raise}";
        /// The run waits until model requests of other runs of its tree (its root run and all
        /// descendants) release the amounts that they hold (reserve) of the budget.
        BudgetHeld "budget_held": BudgetQueue, Runtime, "for the calls of other runs of its tree",
            "The run waits until model calls of other runs of its tree release what they hold of the \
             budget; it then continues automatically.",
            "";
        /// The run waits because a spend cap does not cover its next model call.
        Cap(wait: SpendCapWait) "cap": Timer, Period, "at the spend cap {cap} until {until}   {raise_cap}",
            "The cap `{cap}`{subject} does not cover the next model call{shortage}; the run continues \
             when an amount is released, when somebody raises the cap, or when its window ends at \
             {until}.",
            "{raise_cap}";
        /// The run waits for this tool call of another run, which has the same effect key (the key of
        /// an effect that happens at most once).
        Key(holder: EffectKeyHolder) "key": EffectKey, OtherRun,
            "for the call {call} of {run}, which has the same effect key",
            "The run waits for the call {call} of {run}, or of the run that retries {run}, which \
             has the same effect key; it gets the result of that call, or makes its own call if that \
             one had no effect.",
            "longhaul why {run}";
        /// The run has answered and waits for follow-up messages until this time.
        Message(until: Timestamp) "message": Timer, Person, "open for a message",
            "The run is done and stays open for a message until {until}.",
            "longhaul steer {id} TEXT";
        /// The run waits for another worker to claim it, because its last worker has given it up
        /// without a crash, such as at a shutdown.
        Worker "worker": Unchecked, Runtime, "",
            "The run waits for a worker.", "longhaul worker";
        /// The run waits for its start time. In a journal, a message or a command woke the run
        /// before that time.
        StartAt(until: Timestamp) "start_at": Timer, Runtime, "until its start at {until}",
            "The run waits for its start time{start}.", "";
        /// The run waits for the previous run of its batch to complete. In a journal, a message or a
        /// command woke the run before that.
        Batch "batch": Unchecked, Runtime, "for the run before it in its batch",
            "The run waits for the run before it in its batch.", "";
    }
    queued {
        /// The run is queued in a lane. The store alone knows this wait.
        Lane "lane": Unchecked, "The run waits for the run before it in the lane `{lane}`.";
        /// The run collects messages before it starts. The store alone knows this wait.
        Collect "collect": Timer, "The run waits a moment for more messages.";
    }
}

impl WaitKind {
    /// Reasons for which only a person can let a run continue, in lists of what needs a person. A
    /// run that is done and stays open for a message needs nobody.
    pub const NEEDS_PERSON: [Self; 4] =
        [Self::Approval, Self::Question, Self::Blocked, Self::Budget];

    /// Returns the name of the reason in the API and in the store.
    pub const fn code(self) -> &'static str {
        self.row().code
    }

    /// Returns the reason with this name. `None` if there is none.
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.code() == code)
    }
}

impl WaitReason {
    /// Returns everything that is known about this reason to wait.
    pub const fn row(&self) -> &'static WaitRow {
        self.kind().row()
    }

    /// Returns the name of the reason in the API and in the store.
    pub const fn reason(&self) -> &'static str {
        self.kind().code()
    }

    /// Returns the time at which the wait ends even if no event arrives. `None` if there is no such
    /// time. The data of a wait that has such a time is the time itself, or names it `until`.
    pub fn end_time(&self) -> Option<Timestamp> {
        self.own_fact("until")?.parse().ok()
    }

    /// Inserts facts into a text of this wait's row: those that `fact` knows, or else the data of the
    /// wait.
    pub fn fill_in(&self, text: &str, fact: impl Fn(&str) -> Option<String>) -> String {
        fill_in(text, |name| fact(name).or_else(|| self.own_fact(name)))
    }

    /// Returns the text of the wait's data that has this name in JSON. Data that is one value, such
    /// as a time, has no name.
    fn own_fact(&self, name: &str) -> Option<String> {
        let wait = serde_json::to_value(self).unwrap_or_default();
        let data = wait.get(self.reason()).unwrap_or(&wait);
        data.get(name).unwrap_or(data).as_str().map(str::to_owned)
    }
}

/// Inserts facts into a text, which names them in braces. An unknown fact is left out.
pub fn fill_in(text: &str, fact: impl Fn(&str) -> Option<String>) -> String {
    let mut parts = text.split('{');
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once('}').unwrap_or((part, ""));
        filled.push_str(&fact(name).unwrap_or_default());
        filled.push_str(rest);
    }
    filled
}

/// A wait for a provider that is unavailable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutageWait {
    /// Time at which the wait for the provider began.
    pub since: Timestamp,
    /// Time of the next request to the provider.
    pub until: Timestamp,
    /// Class of the provider's last failure.
    pub class: FailureClass,
}

/// A wait of a run at a spend cap that does not cover its next model call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpendCapWait {
    /// Id of the spend cap.
    pub cap: String,
    /// Key, actor, agent or model whose usage the cap counts. Empty if the cap counts all usage
    /// together.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// Time at which the window of the cap ends.
    pub until: Timestamp,
    /// Needed amount, remaining amount and limit when the wait began. `None` in journals of earlier
    /// builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shortage: Option<SpendCapShortage>,
}

/// Needed amount, remaining amount and limit of a spend cap when a run began to wait, in the unit
/// of the cap: millionths of a US dollar, tokens or runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpendCapShortage {
    /// Largest amount that the next model call can use.
    pub needed: u64,
    /// Amount that was left of the spend cap when the run began to wait.
    pub left: u64,
    /// Limit of the spend cap when the run began to wait.
    pub limit: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_wait_is_its_name_in_journals() {
        for (wait, json) in [
            (WaitReason::SandboxSlot, r#""sandbox_slot""#),
            (
                WaitReason::RateLimit(Timestamp::from_micros(0)),
                r#"{"rate_limit":"1970-01-01T00:00:00.000000Z"}"#,
            ),
            (
                WaitReason::Outage(OutageWait {
                    since: Timestamp::from_micros(0),
                    until: Timestamp::from_micros(1),
                    class: FailureClass::Overloaded,
                }),
                r#"{"outage":{"since":"1970-01-01T00:00:00.000000Z","until":"1970-01-01T00:00:00.000001Z","class":"overloaded"}}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&wait).unwrap(), json);
            assert!(json.contains(wait.reason()), "{json}");
            assert_eq!(WaitKind::from_code(wait.reason()), Some(wait.kind()));
        }
    }

    #[test]
    fn a_wait_that_a_timer_ends_has_an_end_time() {
        let time = Timestamp::from_micros(1);
        let outage = OutageWait { since: time, until: time, class: FailureClass::Overloaded };
        let cap = SpendCapWait {
            cap: "week".into(),
            subject: String::new(),
            until: time,
            shortage: None,
        };
        let waits = [
            WaitReason::Timer(time),
            WaitReason::Tool(time),
            WaitReason::RateLimit(time),
            WaitReason::Retry(time),
            WaitReason::Outage(outage),
            WaitReason::Cap(cap),
            WaitReason::Message(time),
            WaitReason::StartAt(time),
        ];
        let kinds = WaitKind::ALL.iter().copied();
        // Queued runs, such as those of `Collect`, have no `WaitReason`.
        let kinds = kinds.filter(|kind| *kind != WaitKind::Collect);
        let ended_by_timer = kinds.filter(|kind| matches!(kind.row().waker, Waker::Timer));
        assert!(ended_by_timer.eq(waits.iter().map(WaitReason::kind)));
        for wait in waits {
            assert_eq!(wait.end_time(), Some(time), "{wait:?}");
        }
    }

    #[test]
    fn facts_are_inserted_into_the_texts_of_a_wait() {
        let wait = WaitReason::Timer(Timestamp::from_micros(0));
        let event = wait.fill_in(wait.row().event, |_| None);
        assert_eq!(event, "until 1970-01-01T00:00:00.000000Z");
        let own = |name: &str| (name == "id").then(|| "run_1".to_owned());
        assert_eq!(wait.fill_in(wait.row().command, own), "longhaul steer run_1 TEXT");
    }
}
