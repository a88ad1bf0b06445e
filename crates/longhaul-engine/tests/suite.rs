//! The one integration binary of this crate: each module is a file in `suite/`.

#[cfg(test)]
mod suite {
    mod control;
    mod cost;
    mod dispatch;
    mod doubt;
    mod faults;
    mod gates;
    mod house;
    mod kill;
    mod late;
    mod memory;
    mod output;
    mod passes;
    mod recover;
    mod sim;
    mod simulation;
    mod steer;
    mod stop;
    mod submit;
    mod talk;
    mod worker;
}
