//! The command line against a real server.

mod pairs;
mod writes;
