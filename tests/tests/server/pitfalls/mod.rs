//! The pitfalls of similar servers, tried at the real server. [`xds_tests::pitfalls`] lists all of them with their tests.

mod ack;
mod delta;
mod files;
mod list;
mod nodes;
mod order;
mod rest;
mod subscription;
mod world;
