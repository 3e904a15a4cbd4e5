//! The page of the admin port, and what it is told of connections.

use axum::Router;
use http::Extensions;
use xds_api::{SignIn, VerifiedClient};
use xds_ui::Connections;

/// The page over the admin API.
pub(crate) fn over(rest: Router, are_encrypted: bool) -> Router {
    xds_ui::router(rest, Connections { identify, carry, sign_in, are_encrypted })
}

/// What the API needs to know of a connection.
fn carry(extensions: &Extensions) -> Extensions {
    let mut carried = Extensions::new();
    if let Some(connection) = extensions.get::<xds_api::Connection>() {
        carried.insert(connection.clone());
    }
    if let Some(verified) = extensions.get::<VerifiedClient>() {
        carried.insert(*verified);
    }
    carried
}

/// Marks the question whether somebody may sign in.
fn sign_in(extensions: &mut Extensions) {
    extensions.insert(SignIn);
}

/// Everything that a connection proves.
fn identify(extensions: &Extensions) -> String {
    let proofs = extensions.get::<xds_api::Connection>().map(|connection| connection.proofs.clone());
    let mut proved: Vec<String> =
        proofs.iter().flat_map(|proofs| proofs.iter()).map(|proof| proof.subject.to_string()).collect();
    if extensions.get::<VerifiedClient>().is_some() {
        proved.push("verified".to_owned());
    }
    proved.sort_unstable();
    proved.join(" ")
}
