//! The one integration binary of this crate: each module is a file in `suite/`.

#[cfg(test)]
mod suite {
    mod cost;
    mod kill;
    mod late;
    mod sim;
    mod simulation;
}
