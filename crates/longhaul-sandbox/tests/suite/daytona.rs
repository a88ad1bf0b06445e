//! Tests of the module `daytona`.
