//! The harness, the model client and every test that needs more than one crate.
