//! The command line against a real server.

mod dead;
mod diff;
mod pairs;
mod revisions;
mod writes;
