//! The xDS transport protocol for one client, SotW and delta, without I/O.
