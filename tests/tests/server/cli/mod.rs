//! The command line against a real server.

mod config_dump;
mod dead;
mod diff;
mod oracle;
mod output;
mod pairs;
mod revisions;
mod route_tests;
mod terminal;
mod waiting;
mod writes;
