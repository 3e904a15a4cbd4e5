//! The harness and every test that needs more than one crate.
//!
//! The harness starts real programs and talks to them: the server under test ([`server`]), a pinned Envoy
//! ([`envoy`]), programs on three gRPC libraries ([`worker`]), and backends that say who they are ([`backend`]).
//! [`tools`] installs programs that are not Rust. [`raw`] speaks xDS field by field, where a real client would be too polite, and
//! [`bare`] serves any bytes, where the server under test would refuse them.
//! [`config`] writes configuration, and [`documents`] writes route documents and starts the programs to try them. [`rpc`] makes single
//! requests, HTTP and gRPC, to any host. [`names`] gives a name several addresses. [`seen`] and [`events`] shorten the answers of a server for comparison. [`certificates`] issues
//! certificates and speaks TLS; [`certificate_files`] are those of `xds-server ca`, and [`dial`] connects gRPC clients with them. [`spiffe_agent`] is a SPIFFE agent, and [`tokens`] issues JSON Web Tokens. [`tls_tunnel`] lets
//! clients in plaintext reach a server that speaks TLS.
//! [`secured`] is a server with TLS and clients that send requests while their credentials change. [`footprint`] measures memory and processor time. [`healthy`] is a client that is served during
//! attacks, and [`shapes`] makes hostile contents. [`random`] makes choices that can be repeated. [`delay`] puts a distance between two
//! programs, [`proxy`] cuts and freezes connections, [`transitions`] makes random changes of complete configurations, [`soak`] makes good and bad changes to real clients for a long time, and [`load`] sends requests meanwhile.
//! [`prometheus`] is a Prometheus that reads metrics and evaluates rules.
//!
//! [`pitfalls`] lists the mistakes of similar servers, and the test of each.
//!
//! Everything is asynchronous, ends when it is dropped, and has a time limit. Nothing sleeps for a fixed time:
//! [`wait::wait_for`] asks again until the value is there, and shows the last answer if it gives up.

pub mod backend;
pub mod bare;
pub mod browser;
pub mod certificate_files;
pub mod certificates;
pub mod config;
mod crl;
pub mod delay;
pub mod dial;
pub mod documents;
pub mod envoy;
pub mod etcd;
mod etcd_links;
pub mod events;
pub mod footprint;
pub mod foreign;
pub mod healthy;
pub mod http;
pub mod load;
pub mod names;
pub mod pitfalls;
pub mod process;
pub mod prometheus;
pub mod proxy;
pub mod random;
pub mod raw;
pub mod route_client;
pub mod rpc;
pub mod secured;
pub mod seen;
pub mod server;
pub mod shapes;
pub mod soak;
pub mod spiffe_agent;
mod splitmix;
pub mod tls_tunnel;
pub mod tokens;
pub mod tools;
pub mod transitions;
pub mod wait;
pub mod worker;
pub mod world;
