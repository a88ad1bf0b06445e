//! The single integration test binary of this crate; each module is a file in `suite/`.

#[cfg(test)]
mod suite {
    mod api_keys;
    mod backup;
    mod conformance;
    mod crash;
    mod damage;
    mod disk;
    mod driver;
    mod faults;
    mod file_format;
    mod harness;
    mod location;
    mod migrate;
    mod process;
    mod repair;
    mod retention;
}
