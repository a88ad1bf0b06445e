//! OpenAPI schemas of query parameters. They only describe the parameters; the types of the query
//! validate them.

use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;
use utoipa::{PartialSchema, ToSchema};

use crate::schema;

macro_rules! schema_type {
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

schema_type!(
    /// OpenAPI schema of a run's id.
    RunIdSchema,
    schema::run_id_schema()
);
schema_type!(
    /// OpenAPI schema of a gate's id.
    GateIdSchema,
    schema::gate_id_schema()
);
schema_type!(
    /// OpenAPI schema of the id of a remembered approval.
    RuleIdSchema,
    schema::rule_id_schema()
);
schema_type!(
    /// OpenAPI schema of a gate's status.
    GateStatusSchema,
    schema::gate_status_schema()
);
schema_type!(
    /// OpenAPI schema of a list of run statuses.
    StatusListSchema,
    schema::run_status_list_schema()
);
