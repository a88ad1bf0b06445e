//! The proxy through which programs in a sandbox reach the hosts that they may reach.
