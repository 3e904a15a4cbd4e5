//! The record of a request: its line in the audit log, and its counts.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::{MatchedPath, Request};
use http::header::AUTHORIZATION;
use http::{Method, StatusCode};
use xds_access::audit::Entry;
use xds_access::{AuthCount, AuthCounts, Trail};

use crate::access::SignIn;
use crate::caller::{Caller, Connection};
use crate::problem::ApiError;

/// All that is on record of a request before it is done.
pub(crate) struct Record {
    trail: Arc<Trail>,
    counts: Arc<AuthCounts>,
    method: Method,
    route: Option<String>,
    address: Option<IpAddr>,
    peer: Option<Arc<str>>,
    /// The first name that its certificate proves.
    identity: Option<String>,
    /// The way in which it says who it is.
    via: &'static str,
}

impl Record {
    /// `verb` is that of the endpoint, where it has verbs: the route of the router ends before it.
    pub(crate) fn new(
        trail: &Arc<Trail>,
        counts: &Arc<AuthCounts>,
        request: &Request,
        verb: Option<&'static str>,
    ) -> Self {
        let from = request.extensions().get::<Connection>();
        let bearer = request.headers().get(AUTHORIZATION).map(|value| value.as_bytes());
        let via = match bearer {
            Some(token) if token.iter().filter(|byte| **byte == b'.').count() == 2 => "jwt",
            Some(_) => "token",
            None if from.is_some_and(|from| !from.proofs.is_empty()) => "certificate",
            None => "anonymous",
        };
        let signs_in = request.extensions().get::<SignIn>().is_some();
        let of_router = || {
            request.extensions().get::<MatchedPath>().map(|path| match verb {
                Some(verb) => format!("{}:{verb}", path.as_str()),
                None => path.as_str().to_owned(),
            })
        };
        Self {
            trail: Arc::clone(trail),
            counts: Arc::clone(counts),
            method: if signs_in { Method::POST } else { request.method().clone() },
            route: if signs_in { Some(SIGN_IN.to_owned()) } else { of_router() },
            address: from.and_then(|from| from.address),
            peer: from.and_then(|from| from.shown.clone()),
            identity: from.and_then(|from| from.proofs.first()).map(|proof| proof.subject.to_string()),
            via,
        }
    }

    /// The request was done, or refused by what it is about. Requests without an event leave no line, unless they are refused.
    pub(crate) fn done(&self, caller: &Caller, event: Option<&'static str>, status: StatusCode) {
        self.count(None);
        if status == StatusCode::FORBIDDEN {
            return self.refuse(self.entry("api.denied", "denied", Some(caller)), "scope", status);
        }
        let Some(event) = event else { return };
        let deed = caller.deed();
        let outcome = if status.as_u16() < 400 { "allowed" } else { "failed" };
        let entry = self.entry(event, outcome, Some(caller)).with("status", status.as_u16());
        let entry = entry.with("onBehalfOf", deed.on_behalf_of).with("objects", deed.objects);
        let entry = entry.with("revision", deed.revision).with("dryRun", deed.is_dry_run.then_some(true));
        self.trail.record(entry, SystemTime::now());
    }

    /// The guard refused the request; `caller` if it knows who it was.
    pub(crate) fn refused(&self, error: &ApiError, caller: Option<&Caller>) {
        let reason = error.refusal();
        self.count(Some(reason));
        self.refuse(self.entry("api.denied", "denied", caller), reason, error.status());
    }

    fn refuse(&self, entry: Entry, reason: &'static str, status: StatusCode) {
        let entry = entry.with("reason", reason).with("status", status.as_u16());
        let route = self.route.as_deref().unwrap_or("?");
        let who = self.address.map(|address| address.to_string()).unwrap_or_default();
        let principal = entry.text("principal").unwrap_or_default();
        let kind = format!("{reason} {} {route} {who} {principal}", self.method);
        self.trail.refuse(&kind, entry, SystemTime::now());
    }

    fn entry(&self, event: &'static str, outcome: &'static str, caller: Option<&Caller>) -> Entry {
        let identified = caller.and_then(|caller| caller.identified.as_deref());
        Entry::new(event, outcome)
            .with("principal", identified.map(|it| it.principal.name.to_string()))
            .with(
                "actor",
                identified.filter(|it| it.actor != it.principal.name).map(|it| it.actor.to_string()),
            )
            .with("role", identified.map(|it| it.principal.role.as_str()))
            .with("via", identified.map_or_else(|| self.via.to_owned(), |it| it.via.to_string()))
            .with("identity", self.identity.as_deref())
            .with("peer", self.peer.as_deref())
            .with("method", self.method.as_str())
            .with("route", self.route.as_deref())
    }

    fn count(&self, denied: Option<&'static str>) {
        self.counts.add(AuthCount { port: "admin", method: self.via, denied });
    }
}

/// The address of the page at which somebody signs in.
const SIGN_IN: &str = "/ui/sign-in";
