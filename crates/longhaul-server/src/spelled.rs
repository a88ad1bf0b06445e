//! How parts of paths, queries and headers are spelled, for the description.
//!
//! Never: read by anybody but programs that make clients. What is taken is
//! decided where it is parsed.

use longhaul_api::schema;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ArrayBuilder, Schema};
use utoipa::{PartialSchema, ToSchema};

macro_rules! spelled {
    ($(#[$doc:meta])* $name:ident, $schema:expr) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $name;

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                RefOr::T(Schema::from($schema))
            }
        }

        impl ToSchema for $name {}
    };
}

spelled!(
    /// The id of a run.
    RunWord,
    schema::run_id()
);
spelled!(
    /// The id of a gate.
    GateWord,
    schema::gate_id()
);
spelled!(
    /// The id of a message.
    SteerWord,
    schema::steer_id()
);
spelled!(
    /// How a gate stands.
    GateStatusWord,
    schema::gate_status()
);
spelled!(
    /// How runs stand, any number of them.
    StatusWords,
    ArrayBuilder::new().items(schema::status())
);
