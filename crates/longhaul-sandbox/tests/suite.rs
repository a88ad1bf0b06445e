//! The integration test binary of this crate; each module is a file in `suite/`.

#[cfg(test)]
mod suite {
    mod daytona;
    mod docker;
    mod egress;
    mod local;
}
