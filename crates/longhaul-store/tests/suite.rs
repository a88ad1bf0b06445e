//! The one integration binary of this crate: each module is a file in `suite/`.

#[cfg(test)]
mod suite {
    mod backup;
    mod conformance;
    mod damage;
    mod disk;
    mod doors;
    mod driver;
    mod faults;
    mod form;
    mod kill;
    mod kit;
    mod migrate;
    mod place;
    mod process;
    mod retention;
}
