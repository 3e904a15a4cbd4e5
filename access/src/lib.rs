//! Who may do what: the access policy, and the check of tokens.
//!
//! A [`Policy`] is read from one file. Its issuers say whose JSON Web Tokens are believed ([`Policy::verify_bearer`]), its principals
//! who may use the admin API, and how ([`Policy::identify`]), and its denied identities whom nobody serves any more
//! ([`Policy::denial`]). [`limit`] slows down whoever guesses.
//!
//! The crate does no I/O and reads no clock. Its texts and errors never hold a token.

mod claims;
mod issuer;
mod jwt;
mod keys;
pub mod limit;
mod policy;
mod principal;
mod read;
#[cfg(test)]
mod tests;
mod token;

pub use issuer::Issuer;
pub use jwt::{BadToken, MAX_TOKEN_BYTES};
pub use policy::{Identified, Policy, Unidentified};
pub use principal::{Patterns, Principal, Role, Scope};
pub use token::{InvalidTokenHash, TokenHash, token_of};
