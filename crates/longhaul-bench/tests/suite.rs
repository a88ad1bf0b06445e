//! The single integration-test binary of this crate; each module is a file in `suite/`.

#[cfg(test)]
mod suite {
    mod benches;
}
