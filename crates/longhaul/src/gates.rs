//! Gates: what runs ask people, and the answers that programs bring.
//!
//! Never: judges an answer. The engine does, and the first valid one wins.

use longhaul_api::gate::GateView;
use longhaul_core::id::GateId;
use longhaul_core::policy::gate::{Answer as GateAnswer, Decision, GateStatus, Scope};
use longhaul_core::port::store::GateFilter;
use longhaul_core::raw::Hash;
use longhaul_engine::Longhaul;
use longhaul_engine::view::gate_view;
use serde::Serialize;

use crate::error::{Error, SerializeError, to_json};

/// Who speaks where a program names nobody.
pub(crate) const DEFAULT_ACTOR: &str = "program";

/// Maximum number of gates that are listed at once.
const GATES_MAX: usize = 1_000;

/// The gates of a runtime.
///
/// ```no_run
/// # async fn example(runtime: longhaul::Runtime) -> Result<(), longhaul::Error> {
/// for gate in runtime.gates().open().await? {
///     println!("{} asks since {}: {}", gate.run, gate.raised_at, gate.ask);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Gates<'a>(pub(crate) &'a Longhaul);

impl Gates<'_> {
    /// The newest 1,000 gates that wait for an answer, newest first.
    ///
    /// # Errors
    /// The store failed.
    pub async fn open(&self) -> Result<Vec<GateView>, Error> {
        let ask = GateFilter {
            status: Some(GateStatus::Open),
            limit: GATES_MAX,
            ..GateFilter::default()
        };
        let rows = self.0.gates(ask).await?;
        Ok(rows.iter().map(gate_view).collect())
    }

    /// One gate, open or not.
    ///
    /// # Errors
    /// There is no such gate, or the store failed.
    pub async fn get(&self, gate: GateId) -> Result<GateView, Error> {
        Ok(gate_view(&self.0.gate(gate).await?))
    }
}

/// An answer at a gate.
///
/// ```
/// use longhaul::Answer;
///
/// let no = Answer::reject().by("shop:anna").note("That train is full.");
/// let words = Answer::text("Platform 4");
/// ```
#[derive(Debug, Clone)]
pub struct Answer {
    answer: GateAnswer,
    serialize_error: Option<SerializeError>,
}

impl Answer {
    /// Yes to what has this digest: the gate's, as it was shown. A gate without one takes `None`.
    pub fn approve(digest: impl Into<Option<Hash>>) -> Self {
        let mut answer = Self::new(Decision::Approve);
        answer.answer.digest = digest.into();
        answer
    }

    /// Yes, but with this input instead of the one with this digest.
    pub fn edit(digest: impl Into<Option<Hash>>, input: impl Serialize) -> Self {
        let mut bad_value = None;
        let input = to_json("the edited input", &input, &mut bad_value);
        let mut answer = Self::new(Decision::Edit(input));
        answer.answer.digest = digest.into();
        answer.serialize_error = bad_value;
        answer
    }

    /// No.
    pub fn reject() -> Self {
        Self::new(Decision::Reject)
    }

    /// The words that answer a question.
    pub fn text(words: impl Into<String>) -> Self {
        Self::new(Decision::Answer(words.into()))
    }

    /// What was waited for has happened.
    pub fn complete() -> Self {
        Self::new(Decision::Complete)
    }

    fn new(decision: Decision) -> Self {
        let answer = GateAnswer {
            decision,
            by: DEFAULT_ACTOR.to_owned(),
            scope: Scope::default(),
            note: None,
            payload: None,
            digest: None,
        };
        Self { answer, serialize_error: None }
    }

    /// Who answers, such as `shop:anna`; `program` unless it is said.
    #[must_use]
    pub fn by(mut self, who: impl Into<String>) -> Self {
        self.answer.by = who.into();
        self
    }

    /// Words for the model.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.answer.note = Some(note.into());
        self
    }

    /// Data for the model and for templates.
    #[must_use]
    pub fn payload(mut self, payload: impl Serialize) -> Self {
        let payload = to_json("the payload", &payload, &mut self.serialize_error);
        self.answer.payload = Some(payload);
        self
    }

    /// An approval that holds for every call of this run that the same rule stops.
    #[must_use]
    pub fn for_this_run(mut self) -> Self {
        self.answer.scope = Scope::Run;
        self
    }

    /// The answer as the engine takes it.
    pub(crate) fn build(self) -> Result<GateAnswer, Error> {
        match self.serialize_error {
            Some(bad) => Err(bad.into()),
            None => Ok(self.answer),
        }
    }
}
