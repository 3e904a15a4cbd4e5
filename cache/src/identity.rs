//! Verified identities: what a client has proved about itself, and the entries that grant groups by it.
//!
//! A [`Node`](crate::Node) is a claim. A [`Proof`] is what a certificate or a token showed to be true, and how long it holds.
//! [`Identity`] entries of a node group match proofs. All comparisons are of bytes as they are, and every pattern that is absent
//! matches nothing.

mod entry;
mod pattern;
mod proof;
mod spiffe;

pub use entry::{Identity, IdentityMatch, InvalidIdentity, NodeIdPattern};
pub use pattern::{
    Captures, ClaimPattern, DnsPattern, InvalidPattern, MAX_PATTERN_BYTES, SpiffePattern, SubjectPattern,
    TokenPattern,
};
pub use proof::{Claims, DnsName, Fingerprint, InvalidDnsName, Proof, Proofs, Subject, Token, shown};
pub use spiffe::{InvalidSpiffeId, SpiffeId, TrustDomain};
