//! The one integration binary of this crate: each module is a file in `suite/`.

#[cfg(test)]
mod suite {
    mod clean;
    mod clock_steps;
    mod contract;
    mod control;
    mod cost;
    mod dispatch;
    mod doubt;
    mod events;
    mod faults;
    mod gates;
    mod house;
    mod kill;
    mod late;
    mod memory;
    mod output;
    mod passes;
    mod perception;
    mod progress;
    mod recover;
    mod retention;
    mod secrets;
    mod secrets_of_strangers;
    mod sim;
    mod simulation;
    mod steer;
    mod stop;
    mod submit;
    mod supplies;
    mod talk;
    mod worker;
}
