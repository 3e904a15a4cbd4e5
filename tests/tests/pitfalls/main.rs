//! The pitfalls of peers, over the real server. [`xds_tests::pitfalls`] lists all and says where each is tested.

mod ack;
mod delta;
mod files;
mod list;
mod nodes;
mod order;
mod rest;
mod subscription;
mod world;
