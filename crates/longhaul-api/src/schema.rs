//! How the words of the core are described to programs: ids, names, times and
//! closed lists, each made from the code that reads and writes it.
//!
//! Never: a list that is written down twice.

use longhaul_core::access::Role;
use longhaul_core::policy::gate::{GateKind, GateStatus, OnTimeout, Scope};
use longhaul_core::status::Status;
use serde::Serialize;
use utoipa::openapi::schema::{KnownFormat, Object, ObjectBuilder, SchemaFormat, Type};

/// The letters of an id after its prefix, as a pattern.
const SUFFIX: &str = "[0-7][0-9a-hjkmnp-tv-z]{25}";

fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

fn id(prefix: &str) -> Object {
    text().pattern(Some(format!("^{prefix}_{SUFFIX}$"))).build()
}

/// The id of a run.
pub fn run_id() -> Object {
    id("run")
}

/// The id of a gate.
pub fn gate_id() -> Object {
    id("gate")
}

/// The id of a message to a run.
pub fn steer_id() -> Object {
    id("steer")
}

/// A point in time, with six decimals, so that it sorts as text.
pub fn time() -> Object {
    text().format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime))).build()
}

/// A hash in hex.
pub fn hash() -> Object {
    text().pattern(Some("^[0-9a-f]{64}$")).build()
}

/// Any JSON.
pub fn any() -> Object {
    ObjectBuilder::new().schema_type(utoipa::openapi::schema::SchemaType::AnyValue).build()
}

/// One of these words, as they are written.
fn one_of<T: Serialize>(all: impl IntoIterator<Item = T>) -> Object {
    let words = all.into_iter().map(|word| serde_json::json!(word));
    text().enum_values(Some(words)).build()
}

/// How a run stands.
pub fn status() -> Object {
    one_of(Status::ALL)
}

/// What a caller may do.
pub fn role() -> Object {
    one_of(Role::ALL)
}

/// How a gate stands.
pub fn gate_status() -> Object {
    one_of([GateStatus::Open, GateStatus::Answered, GateStatus::Expired, GateStatus::Withdrawn])
}

/// What a gate asks.
pub fn gate_kind() -> Object {
    one_of([
        GateKind::Approval,
        GateKind::Result,
        GateKind::Question,
        GateKind::Blocked,
        GateKind::InDoubt,
        GateKind::Signal,
    ])
}

/// What silence means at a gate.
pub fn on_timeout() -> Object {
    one_of([OnTimeout::Reject, OnTimeout::Approve, OnTimeout::Fail, OnTimeout::Pause])
}

/// How far an approval reaches.
pub fn scope() -> Object {
    one_of([Scope::Once, Scope::Run])
}
