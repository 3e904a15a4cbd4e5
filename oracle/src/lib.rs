//! A local Envoy that is asked whether it takes resources (`envoy --mode validate`).
//!
//! [`candidate`] says what can be asked, and writes the bootstrap of a question. [`process`] runs the Envoy. [`search`] finds the
//! resources that it refuses. The server asks while it serves, and remembers the answers (`server/src/oracle.rs`). The Envoy runs on this
//! machine: it reads the files that resources name, and knows nothing of the bootstraps of clients.

mod candidate;
mod process;
mod search;

pub use candidate::Candidate;
pub use process::Envoy;
pub use search::{Bounds, Crash, MAX_VERSION, Oracle, Refusal, Verdict};
