//! Conversions between column values and Rust types. An unknown value is an error.

use std::error::Error;
use std::str::FromStr;

use longhaul_core::access::Role;
use longhaul_core::policy::gate::GateStatus;
use longhaul_core::port::auth::LoginTokenKind;
use longhaul_core::port::store::WorkerLiveness;
use longhaul_core::raw::Hash;
use longhaul_core::status::Status;
use longhaul_core::time::Timestamp;
use rusqlite::types::{Type, ValueRef};
use rusqlite::{Result, Row};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Column value of the run state: in the ready queue.
pub(crate) const READY: i64 = 0;
/// Column value of the run state: claimed by a worker.
pub(crate) const LEASED: i64 = 1;
/// Column value of the run state: waiting until an event wakes the run.
pub(crate) const PARKED: i64 = 2;
/// Column value of the run state: waiting for its turn in a lane.
pub(crate) const LANE_WAIT: i64 = 3;
/// Column value of the run state: paused by a person.
pub(crate) const PAUSED: i64 = 4;
/// Column value of the run state: ended.
pub(crate) const ENDED: i64 = 5;

/// Maximum amount of money or tokens that one change may add to a column, so that the sum of
/// thousands of changes still fits into the column.
const AMOUNT_MAX: u64 = 1 << 50;

/// Converts a count to a column value, at most `i64::MAX`.
pub(crate) fn count_to_column(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Converts a maximum number of rows to a column value.
pub(crate) fn limit_to_column(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Converts an amount of money or tokens to a column value.
pub(crate) fn amount_to_column(amount: u64) -> i64 {
    count_to_column(amount.min(AMOUNT_MAX))
}

/// Reads a count from a column.
pub(crate) fn get_u64(row: &Row<'_>, index: usize) -> Result<u64> {
    let count: i64 = row.get(index)?;
    u64::try_from(count).map_err(|error| column_conversion_error(index, Type::Integer, error))
}

/// Reads a count from a column. A larger value becomes `u32::MAX`.
pub(crate) fn get_u32(row: &Row<'_>, index: usize) -> Result<u32> {
    get_u64(row, index).map(|count| u32::try_from(count).unwrap_or(u32::MAX))
}

/// Reads a timestamp from a column.
pub(crate) fn get_time(row: &Row<'_>, index: usize) -> Result<Timestamp> {
    row.get(index).map(Timestamp::from_micros)
}

/// Reads a timestamp from a column that may be null.
pub(crate) fn get_optional_time(row: &Row<'_>, index: usize) -> Result<Option<Timestamp>> {
    let micros: Option<i64> = row.get(index)?;
    Ok(micros.map(Timestamp::from_micros))
}

/// Reads a text from a column and parses it with `FromStr`.
pub(crate) fn get_parsed<T>(row: &Row<'_>, index: usize) -> Result<T>
where
    T: FromStr<Err: Error + Send + Sync + 'static>,
{
    let text: String = row.get(index)?;
    text.parse().map_err(|error| column_conversion_error(index, Type::Text, error))
}

/// Reads a text from a column that may be null, and parses it with `FromStr`.
pub(crate) fn get_optional_parsed<T>(row: &Row<'_>, index: usize) -> Result<Option<T>>
where
    T: FromStr<Err: Error + Send + Sync + 'static>,
{
    let text: Option<String> = row.get(index)?;
    text.map(|text| text.parse())
        .transpose()
        .map_err(|error| column_conversion_error(index, Type::Text, error))
}

/// Reads JSON from a column and decodes it.
pub(crate) fn get_json<T: DeserializeOwned>(row: &Row<'_>, index: usize) -> Result<T> {
    let text = row.get_ref(index)?.as_str()?;
    serde_json::from_str(text).map_err(|error| column_conversion_error(index, Type::Text, error))
}

/// Reads JSON from a column that may be null, and decodes it.
pub(crate) fn get_optional_json<T: DeserializeOwned>(
    row: &Row<'_>,
    index: usize,
) -> Result<Option<T>> {
    if row.get_ref(index)? == ValueRef::Null { Ok(None) } else { get_json(row, index).map(Some) }
}

/// Converts a value to JSON text for a column.
pub(crate) fn to_json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

/// Reads the final status of a run from a column.
pub(crate) fn get_final_status(row: &Row<'_>, index: usize) -> Result<Status> {
    let code = get_u64(row, index)?;
    let status = usize::try_from(code).ok().and_then(|code| Status::ALL.get(code));
    status.copied().ok_or_else(|| {
        column_conversion_error(index, Type::Integer, UnknownColumnCodeError("status"))
    })
}

/// Converts the status of a run to a column value: its index in `Status::ALL`.
pub(crate) fn status_to_column(status: Status) -> i64 {
    let index = Status::ALL.iter().position(|other| *other == status);
    limit_to_column(index.unwrap_or_default())
}

/// Reads the status of a gate from a column.
pub(crate) fn get_gate_status(row: &Row<'_>, index: usize) -> Result<GateStatus> {
    match row.get(index)? {
        0 => Ok(GateStatus::Open),
        1 => Ok(GateStatus::Answered),
        2 => Ok(GateStatus::Expired),
        3 => Ok(GateStatus::Withdrawn),
        _ => Err(column_conversion_error(
            index,
            Type::Integer,
            UnknownColumnCodeError("gate status"),
        )),
    }
}

/// Converts the status of a gate to a column value.
pub(crate) const fn gate_status_code(status: GateStatus) -> i64 {
    match status {
        GateStatus::Open => 0,
        GateStatus::Answered => 1,
        GateStatus::Expired => 2,
        GateStatus::Withdrawn => 3,
    }
}

/// Reads the liveness of a worker from a column.
pub(crate) fn get_worker_liveness(row: &Row<'_>, index: usize) -> Result<WorkerLiveness> {
    match row.get(index)? {
        0 => Ok(WorkerLiveness::Live),
        1 => Ok(WorkerLiveness::Draining),
        2 => Ok(WorkerLiveness::Dead),
        _ => Err(column_conversion_error(
            index,
            Type::Integer,
            UnknownColumnCodeError("worker liveness"),
        )),
    }
}

/// Converts the liveness of a worker to a column value.
pub(crate) const fn liveness_code(liveness: WorkerLiveness) -> i64 {
    match liveness {
        WorkerLiveness::Live => 0,
        WorkerLiveness::Draining => 1,
        WorkerLiveness::Dead => 2,
    }
}

/// Reads a hash from a column.
pub(crate) fn get_hash(row: &Row<'_>, index: usize) -> Result<Hash> {
    row.get(index).map(Hash::from_bytes)
}

/// Reads a hash from a column that may be null.
pub(crate) fn get_optional_hash(row: &Row<'_>, index: usize) -> Result<Option<Hash>> {
    let bytes: Option<[u8; 32]> = row.get(index)?;
    Ok(bytes.map(Hash::from_bytes))
}

/// Reads the role of an API key from a column.
pub(crate) fn get_role(row: &Row<'_>, index: usize) -> Result<Role> {
    let text: String = row.get(index)?;
    Role::from_name(&text)
        .ok_or_else(|| column_conversion_error(index, Type::Text, UnknownColumnCodeError("role")))
}

/// Converts the kind of a token to a column value.
pub(crate) const fn token_kind_code(kind: LoginTokenKind) -> i64 {
    match kind {
        LoginTokenKind::Session => 0,
        LoginTokenKind::Ticket => 1,
    }
}

/// Returns the error for a column value that can't be converted.
pub(crate) fn column_conversion_error(
    index: usize,
    kind: Type,
    error: impl Error + Send + Sync + 'static,
) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(index, kind, Box::new(error))
}

/// Error for an unknown code in a column. Contains the kind of code, such as a status.
#[derive(Debug, thiserror::Error)]
#[error("the database column contains an unknown {code_kind}", code_kind = .0)]
pub(crate) struct UnknownColumnCodeError(pub(crate) &'static str);
