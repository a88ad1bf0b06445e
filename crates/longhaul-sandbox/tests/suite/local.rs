//! Tests of the module `local`.
