//! A local Envoy that is asked whether it takes resources (`envoy --mode validate`).
//!
//! [`candidate`] says what can be asked, and writes the bootstrap of a question. [`process`] runs the Envoy. [`search`] finds the
//! resources that it refuses, and [`serving`] asks while the server serves, and remembers the answers. The Envoy runs on this machine:
//! it reads the files that resources name, and knows nothing of the bootstraps of clients.

mod candidate;
mod process;
mod search;
mod serving;

pub(crate) use search::{Oracle, Refusal, Verdict};
pub(crate) use serving::Serving;
