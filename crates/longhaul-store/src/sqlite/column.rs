//! What stands in a column, and what it is in words.
//!
//! Never: guesses. A column that says what no build has written is a fault.

use std::error::Error;
use std::str::FromStr;

use longhaul_core::access::Role;
use longhaul_core::policy::gate::GateStatus;
use longhaul_core::port::auth::TokenKind;
use longhaul_core::port::store::WorkerLiveness;
use longhaul_core::raw::Hash;
use longhaul_core::status::Status;
use longhaul_core::time::Timestamp;
use rusqlite::types::Type;
use rusqlite::{Result, Row};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// In the queue.
pub(crate) const READY: i64 = 0;
/// In a worker's hands.
pub(crate) const LEASED: i64 = 1;
/// At rest until a fact wakes it.
pub(crate) const PARKED: i64 = 2;
/// Not yet its lane's turn.
pub(crate) const LANE_WAIT: i64 = 3;
/// Stopped by a person.
pub(crate) const PAUSED: i64 = 4;
/// Nothing follows.
pub(crate) const ENDED: i64 = 5;

/// The largest amount of money or tokens that one change may add: sums of
/// thousands of them still fit a column.
const AMOUNT_MAX: u64 = 1 << 50;

/// A count as a column holds it.
pub(crate) fn int(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A bound of a list as a statement takes it.
pub(crate) fn limit(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// An amount as a column holds it.
pub(crate) fn amount(count: u64) -> i64 {
    int(count.min(AMOUNT_MAX))
}

/// A count from a column.
pub(crate) fn get_u64(row: &Row<'_>, place: usize) -> Result<u64> {
    let count: i64 = row.get(place)?;
    u64::try_from(count).map_err(|error| conversion_error(place, Type::Integer, error))
}

/// A count from a column, as far as it fits.
pub(crate) fn get_u32(row: &Row<'_>, place: usize) -> Result<u32> {
    get_u64(row, place).map(|count| u32::try_from(count).unwrap_or(u32::MAX))
}

/// A point in time.
pub(crate) fn time(row: &Row<'_>, place: usize) -> Result<Timestamp> {
    row.get(place).map(Timestamp::from_micros)
}

/// A point in time that may not have come.
pub(crate) fn maybe_time(row: &Row<'_>, place: usize) -> Result<Option<Timestamp>> {
    let micros: Option<i64> = row.get(place)?;
    Ok(micros.map(Timestamp::from_micros))
}

/// A name of any kind.
pub(crate) fn name<T>(row: &Row<'_>, place: usize) -> Result<T>
where
    T: FromStr<Err: Error + Send + Sync + 'static>,
{
    let text: String = row.get(place)?;
    text.parse().map_err(|error| conversion_error(place, Type::Text, error))
}

/// A name that may be missing.
pub(crate) fn maybe_name<T>(row: &Row<'_>, place: usize) -> Result<Option<T>>
where
    T: FromStr<Err: Error + Send + Sync + 'static>,
{
    let text: Option<String> = row.get(place)?;
    text.map(|text| text.parse())
        .transpose()
        .map_err(|error| conversion_error(place, Type::Text, error))
}

/// A shape of its own.
pub(crate) fn json<T: DeserializeOwned>(row: &Row<'_>, place: usize) -> Result<T> {
    let text = row.get_ref(place)?.as_str()?;
    serde_json::from_str(text).map_err(|error| conversion_error(place, Type::Text, error))
}

/// A shape of its own, as text.
pub(crate) fn to_json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

/// How a run ended.
pub(crate) fn outcome(row: &Row<'_>, place: usize) -> Result<Status> {
    let code = get_u64(row, place)?;
    let status = usize::try_from(code).ok().and_then(|code| Status::ALL.get(code));
    status.copied().ok_or_else(|| conversion_error(place, Type::Integer, UnknownCode("status")))
}

/// How a run ended, as a column holds it: its place in the order of a life.
pub(crate) fn status_code(status: Status) -> i64 {
    let place = Status::ALL.iter().position(|known| *known == status);
    limit(place.unwrap_or_default())
}

/// How a gate stands.
pub(crate) fn gate_status(row: &Row<'_>, place: usize) -> Result<GateStatus> {
    match row.get(place)? {
        0 => Ok(GateStatus::Open),
        1 => Ok(GateStatus::Answered),
        2 => Ok(GateStatus::Expired),
        3 => Ok(GateStatus::Withdrawn),
        _ => Err(conversion_error(place, Type::Integer, UnknownCode("gate status"))),
    }
}

/// How a gate stands, as a column holds it.
pub(crate) const fn gate_status_code(status: GateStatus) -> i64 {
    match status {
        GateStatus::Open => 0,
        GateStatus::Answered => 1,
        GateStatus::Expired => 2,
        GateStatus::Withdrawn => 3,
    }
}

/// How a worker stands.
pub(crate) fn liveness(row: &Row<'_>, place: usize) -> Result<WorkerLiveness> {
    match row.get(place)? {
        0 => Ok(WorkerLiveness::Live),
        1 => Ok(WorkerLiveness::Draining),
        2 => Ok(WorkerLiveness::Dead),
        _ => Err(conversion_error(place, Type::Integer, UnknownCode("standing"))),
    }
}

/// How a worker stands, as a column holds it.
pub(crate) const fn liveness_code(standing: WorkerLiveness) -> i64 {
    match standing {
        WorkerLiveness::Live => 0,
        WorkerLiveness::Draining => 1,
        WorkerLiveness::Dead => 2,
    }
}

/// A hash.
pub(crate) fn hash(row: &Row<'_>, place: usize) -> Result<Hash> {
    row.get(place).map(Hash::from_bytes)
}

/// A hash that may be missing.
pub(crate) fn maybe_hash(row: &Row<'_>, place: usize) -> Result<Option<Hash>> {
    let bytes: Option<[u8; 32]> = row.get(place)?;
    Ok(bytes.map(Hash::from_bytes))
}

/// What a key opens.
pub(crate) fn role(row: &Row<'_>, place: usize) -> Result<Role> {
    let text: String = row.get(place)?;
    Role::parse(&text).ok_or_else(|| conversion_error(place, Type::Text, UnknownCode("role")))
}

/// What a pass is for, as a column holds it.
pub(crate) const fn token_kind_code(kind: TokenKind) -> i64 {
    match kind {
        TokenKind::Session => 0,
        TokenKind::Ticket => 1,
    }
}

/// The fault of a column that can't be read.
pub(crate) fn conversion_error(
    place: usize,
    kind: Type,
    why: impl Error + Send + Sync + 'static,
) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(place, kind, Box::new(why))
}

/// A code that no build has written.
#[derive(Debug, thiserror::Error)]
#[error("no such {0}")]
pub(crate) struct UnknownCode(pub(crate) &'static str);
