//! Parameters in the paths of operations: ids and names of resources.

use std::convert::Infallible;
use std::fmt::{self, Display};
use std::str::FromStr;

use longhaul_core::id::{
    ApiKeyName, BatchId, GateId, InboxName, LaneKey, RuleId, RunId, SandboxId, SteerId, ThreadKey,
};
use utoipa::PartialSchema;
use utoipa::openapi::{RefOr, Schema};

/// Id or name of a resource in a path.
pub trait PathParam: Display + FromStr<Err: Display> + PartialSchema {
    /// Word for the resource, such as `run`.
    const NOUN: &'static str;
    /// Description of the parameter for the OpenAPI document.
    const DESCRIPTION: &'static str;
    /// Code of the 404 error for a text that is not an id. `None` means that the parameter is a
    /// name, and that an invalid name is a 422 error.
    const NOT_FOUND: Option<&'static str>;
}

macro_rules! path_params {
    ($($type:ty = $noun:literal, $description:literal, $not_found:expr;)+) => {$(
        impl PathParam for $type {
            const NOUN: &'static str = $noun;
            const DESCRIPTION: &'static str = $description;
            const NOT_FOUND: Option<&'static str> = $not_found;
        }
    )+};
}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident = $noun:literal, $description:literal;)+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name(pub String);

        impl Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = Infallible;

            fn from_str(text: &str) -> Result<Self, Infallible> {
                Ok(Self(text.to_owned()))
            }
        }

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                String::schema()
            }
        }

        path_params! { $name = $noun, $description, None; }
    )+};
}

names! {
    /// Any text that is compared with the names of agents.
    AgentParam = "agent", "Name of the agent";
    /// Any text that is compared with the names of chains.
    ChainParam = "chain", "Name of the chain";
    /// Any text that is compared with the names of schedules.
    ScheduleParam = "schedule", "Name of the schedule";
    /// Any text that is compared with the ids of spend caps.
    CapParam = "cap", "Id of the cap, such as `day-usd-key`";
}

path_params! {
    RunId = "run", "The run's id", Some("run_not_found");
    GateId = "gate", "The gate's id", Some("gate_not_found");
    RuleId = "rule", "Id of the remembered approval", Some("rule_not_found");
    SandboxId = "sandbox", "Id of the sandbox", Some("sandbox_not_found");
    SteerId = "steer", "The message's id", Some("steer_not_found");
    BatchId = "batch", "The batch's id", Some("batch_not_found");
    InboxName = "inbox", "Name of the inbox", None;
    LaneKey = "lane", "Name of the lane", None;
    ThreadKey = "thread", "Name of the thread", None;
    ApiKeyName = "key", "Name of the key", None;
}

/// Value of a path parameter, and the word for its resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathValue {
    /// Word for the resource, such as `run`.
    pub noun: &'static str,
    /// Id or name of the resource.
    pub text: String,
}

/// Error for a path parameter that is not valid.
#[derive(Debug)]
pub struct InvalidPathParam {
    /// Word for the resource, such as `run`.
    pub noun: &'static str,
    /// Code of the 404 error. `None` means a 422 error.
    pub not_found: Option<&'static str>,
    /// Why the parameter is not valid.
    pub reason: String,
}

/// All parameters in the path of an operation.
pub trait PathParams: Sized {
    /// Returns the values in the order of the path. Default: none.
    fn values(&self) -> Vec<PathValue> {
        Vec::new()
    }

    /// Parses the texts of the parameters, in the order of the path.
    fn parse(texts: &[&str]) -> Result<Self, InvalidPathParam>;

    /// Returns the descriptions and schemas of the parameters, in the order of the path. Default:
    /// none.
    fn describe() -> Vec<(&'static str, RefOr<Schema>)> {
        Vec::new()
    }
}

impl PathParams for () {
    fn parse(_: &[&str]) -> Result<Self, InvalidPathParam> {
        Ok(())
    }
}

impl<T: PathParam> PathParams for T {
    fn values(&self) -> Vec<PathValue> {
        vec![PathValue { noun: T::NOUN, text: self.to_string() }]
    }

    fn parse(texts: &[&str]) -> Result<Self, InvalidPathParam> {
        let text = texts.first().copied().unwrap_or_default();
        text.parse().map_err(|error: T::Err| InvalidPathParam {
            noun: T::NOUN,
            not_found: T::NOT_FOUND,
            reason: error.to_string(),
        })
    }

    fn describe() -> Vec<(&'static str, RefOr<Schema>)> {
        vec![(T::DESCRIPTION, T::schema())]
    }
}

impl<A: PathParam, B: PathParam> PathParams for (A, B) {
    fn values(&self) -> Vec<PathValue> {
        [self.0.values(), self.1.values()].concat()
    }

    fn parse(texts: &[&str]) -> Result<Self, InvalidPathParam> {
        Ok((A::parse(texts)?, B::parse(texts.get(1..).unwrap_or_default())?))
    }

    fn describe() -> Vec<(&'static str, RefOr<Schema>)> {
        [A::describe(), B::describe()].concat()
    }
}
