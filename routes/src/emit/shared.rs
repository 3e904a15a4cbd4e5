//! JSON that both profiles write alike.
