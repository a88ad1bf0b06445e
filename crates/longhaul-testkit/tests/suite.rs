//! The only integration test binary of this crate; each module is a file in `suite/`.

#[cfg(test)]
mod suite {
    mod cost;
    mod kill;
    mod mem_store;
    mod scripts;
    mod simulation;
    mod tidy;
}
