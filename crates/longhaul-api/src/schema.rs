//! OpenAPI schemas of core types: ids, names, times and enums. The enum values come from the
//! types themselves.

use longhaul_core::access::Role;
use longhaul_core::policy::gate::{AnswerScope, GateKind, GateStatus, GateTimeoutAction};
use longhaul_core::schedule::{CatchUp, Overlap};
use longhaul_core::status::Status;
use serde::Serialize;
use utoipa::openapi::schema::{
    Array, ArrayBuilder, KnownFormat, Object, ObjectBuilder, SchemaFormat, Type,
};

/// Regular expression for the part of an id after its prefix.
const SUFFIX: &str = "[0-7][0-9a-hjkmnp-tv-z]{25}";

fn string_schema_builder() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

fn id_schema(id_prefix: &str) -> Object {
    string_schema_builder().pattern(Some(format!("^{id_prefix}_{SUFFIX}$"))).build()
}

pub fn run_id_schema() -> Object {
    id_schema("run")
}

pub fn gate_id_schema() -> Object {
    id_schema("gate")
}

/// Returns the schema of the id of a remembered approval.
pub fn rule_id_schema() -> Object {
    id_schema("rule")
}

/// Returns the schema of the id of a message to a run.
pub fn steer_id_schema() -> Object {
    id_schema("steer")
}

/// Returns the schema of a name or another text.
pub fn text_schema() -> Object {
    string_schema_builder().build()
}

/// Returns the schema of a point in time. Times have six decimals, so they sort as text.
pub fn timestamp_schema() -> Object {
    string_schema_builder().format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime))).build()
}

/// Returns the schema of a hash in hexadecimal.
pub fn hash_schema() -> Object {
    string_schema_builder().pattern(Some("^[0-9a-f]{64}$")).build()
}

/// Returns a schema that accepts any JSON value.
pub fn any_json_schema() -> Object {
    ObjectBuilder::new().schema_type(utoipa::openapi::schema::SchemaType::AnyValue).build()
}

/// Returns the schema of an enum with the given values.
fn enum_schema<T: Serialize>(variants: impl IntoIterator<Item = T>) -> Object {
    let values = variants.into_iter().map(|value| serde_json::json!(value));
    string_schema_builder().enum_values(Some(values)).build()
}

pub fn run_status_schema() -> Object {
    enum_schema(Status::ALL)
}

/// Returns the schema of a list of run statuses.
pub fn run_status_list_schema() -> Array {
    ArrayBuilder::new().items(run_status_schema()).build()
}

/// Returns the schema of the role of an API key.
pub fn role_schema() -> Object {
    enum_schema(Role::ALL)
}

pub fn gate_status_schema() -> Object {
    enum_schema([
        GateStatus::Open,
        GateStatus::Answered,
        GateStatus::Expired,
        GateStatus::Withdrawn,
    ])
}

/// Returns the schema of a gate type.
pub fn gate_kind_schema() -> Object {
    enum_schema([
        GateKind::Approval,
        GateKind::Result,
        GateKind::Question,
        GateKind::Blocked,
        GateKind::InDoubt,
        GateKind::Signal,
    ])
}

/// Returns the schema of the action that is taken when a gate's deadline passes.
pub fn timeout_action_schema() -> Object {
    enum_schema([
        GateTimeoutAction::Reject,
        GateTimeoutAction::Approve,
        GateTimeoutAction::Fail,
        GateTimeoutAction::Pause,
    ])
}

/// Returns the schema of the scope of an approval.
pub fn answer_scope_schema() -> Object {
    enum_schema(AnswerScope::ALL)
}

/// Returns the schema of what happens to missed firings of a schedule.
pub fn schedule_catch_up_schema() -> Object {
    enum_schema(CatchUp::ALL)
}

/// Returns the schema of what happens when a schedule fires while its last run has not ended.
pub fn schedule_overlap_schema() -> Object {
    enum_schema(Overlap::ALL)
}
