//! The server as a program: its command line, its files, its REST API, and clients that speak the protocol by hand.

mod access;
mod bad_input;
mod cli;
mod fixtures;
mod image;
mod kill;
mod log;
mod missing;
mod openapi;
mod pitfalls;
mod raw;
mod restart;
mod traces;
