//! A standalone xDS management server.
