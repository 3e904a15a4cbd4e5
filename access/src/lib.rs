//! Who may do what: the access policy, and the check of tokens.
//!
//! A [`Policy`] is read from one file. Its issuers say whose JSON Web Tokens are believed ([`Policy::verify_bearer`]), its principals
//! who may use the admin API, and how ([`Policy::identify`]), and its denied identities whom nobody serves any more
//! ([`Policy::denial`]). [`mod@check`] finds what is doubtful about it. [`limit`] slows down whoever guesses, and [`audit`] keeps on record what was done and refused.
//!
//! The crate opens no file and reads no clock. Its texts and errors never hold a token.

pub mod audit;
pub mod check;
mod claims;
mod counts;
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

pub use audit::Trail;
pub use claims::token_proof;
pub use counts::{AuthCount, AuthCounts};
pub use issuer::Issuer;
pub use jwt::{BadToken, MAX_TOKEN_BYTES};
pub use policy::{Identified, Policy, Rule, Unidentified};
pub use principal::{Patterns, Principal, Role, Scope};
pub use token::{InvalidTokenHash, TokenHash, token_of};
