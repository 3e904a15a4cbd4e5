//! Several servers that share a store, follow, or relay.

mod etcd;
mod faults;
mod followers;
mod grow;
mod relay;
mod replicas;
