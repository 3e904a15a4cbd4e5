//! The command line against a real server.

mod diff;
mod pairs;
mod writes;
