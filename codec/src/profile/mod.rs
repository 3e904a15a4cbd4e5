//! A lint per kind of client: what an Envoy or a gRPC client makes of raw resources that are right by their types.
//!
//! Raw resources are served to both as they are (D3), and each kind of client refuses or ignores things that the other one
//! takes. [`Codec::lint_profile`] judges what clients of one profile can come to, and nothing else: [`reach`] finds it,
//! the modules of `grpc`, [`envoy`] and [`session`] hold the rules, each with its id in `docs/design/protocol-rules.md`.
//!
//! Faults that `validate.rules` or the lints find for every client are not repeated here.

use std::collections::HashSet;

use xds_cache::{Origin, Profile, Resource, ResourceKey};

use crate::Codec;
use crate::diagnostic::{Diagnostic, Place, Severity};
use crate::document::{Position, Tree};
use crate::finding::Finding;
use crate::path::{Step, format_steps};

mod aggregate;
mod any;
mod draws;
mod envoy;
mod grpc;
mod reach;
mod rule;
mod session;

/// A part of a resource that clients of one profile refuse, ignore or read differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileFinding {
    /// The resource.
    pub resource: ResourceKey,
    /// Where it came from; tells resources of equal keys in several groups apart.
    pub origin: Origin,
    /// The kind of clients.
    pub profile: Profile,
    /// The effect on these clients.
    pub effect: Effect,
    /// The kind of fault, in kebab-case; stable, for filters and tests.
    pub code: &'static str,
    /// The id of the rule in `docs/design/protocol-rules.md`: `B23`.
    pub row: &'static str,
    /// The field, from the resource's message on; empty for the whole resource.
    pub path: String,
    /// The client and the effect, in words.
    pub message: String,
    /// The right value.
    pub suggestion: Option<String>,
    /// True if clients of the other profile can come to the resource too, among the resources that were judged with it.
    pub is_shared: bool,
    steps: Vec<Step>,
}

/// The effect of a [`ProfileFinding`] on a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// It refuses the resource with a NACK; where languages differ, at least one of them does.
    Rejected,
    /// It takes the resource, and requests fail.
    Fails,
    /// It goes on as if it were not there.
    Ignored,
    /// It does something else with it than clients of the other profile, or of another language.
    Differs,
}

impl Codec {
    /// The parts that clients of `profile` would refuse, ignore or read differently in those of `resources` that they can come to,
    /// in the order of resources and paths.
    ///
    /// gRPC clients come to listeners with an `api_listener`, gRPC servers to those with the name of a server template
    /// (`grpc/server?…`, `xds.resource.listening_address`), Envoys to all others and to every cluster; each then to what
    /// these name. Resources whose bytes cannot be decoded are left out.
    #[must_use]
    pub fn lint_profile<'a>(
        &self,
        resources: impl Iterator<Item = &'a Resource>,
        profile: Profile,
    ) -> Vec<ProfileFinding> {
        let resources = reach::Resources::new(resources);
        let by_grpc = grpc::lint(&self.inner, &resources);
        let by_envoy = || envoy::reach(&self.inner, &resources);
        let (mut findings, others) = match profile {
            Profile::Grpc => (by_grpc.findings, by_envoy()),
            Profile::Envoy => (envoy::lint(&self.inner, &resources), by_grpc.reached),
        };
        findings.extend(session::lint(&self.inner, &resources, profile));
        for finding in &mut findings {
            finding.is_shared = others.contains(&finding.resource);
        }
        sorted(findings)
    }

    /// The resources that clients of `profile` can come to, in the sense of [`lint_profile`](Self::lint_profile).
    #[must_use]
    pub fn reached_by<'a>(
        &self,
        resources: impl Iterator<Item = &'a Resource>,
        profile: Profile,
    ) -> HashSet<ResourceKey> {
        let resources = reach::Resources::new(resources);
        match profile {
            Profile::Grpc => grpc::lint(&self.inner, &resources).reached,
            Profile::Envoy => envoy::reach(&self.inner, &resources),
        }
    }
}

/// Each finding once: a resource that is reached as a client's and as a server's is judged as both.
fn sorted(mut findings: Vec<ProfileFinding>) -> Vec<ProfileFinding> {
    let mut seen = HashSet::new();
    findings.retain(|finding| {
        seen.insert((finding.resource.clone(), finding.path.clone(), finding.code, finding.message.clone()))
    });
    findings.sort_by(|a, b| {
        (&a.resource, a.effect, &a.path, a.code).cmp(&(&b.resource, b.effect, &b.path, b.code))
    });
    findings
}

impl ProfileFinding {
    /// The finding as a diagnostic of the file that the resource came from, whose documents are given: its place is that of
    /// the nearest value on its path, or that of the resource if the documents do not have it.
    #[must_use]
    pub fn to_diagnostic(&self, severity: Severity, documents: &[Tree]) -> Diagnostic {
        let (file, line, column) = match &self.origin {
            Origin::File { path, line, column } => (path.clone(), *line, *column),
            Origin::Api => ("".into(), 0, 0),
        };
        let finding = Finding {
            severity,
            code: self.code,
            steps: self.steps.clone(),
            position: None,
            message: self.message.clone(),
            suggestion: self.suggestion.clone(),
            related: Vec::new(),
            is_sensitive: self.path.contains("tls_certificate"),
        };
        match crate::locate::resource_at(documents, line, column) {
            Some(tree) => finding.locate(&file, tree),
            None => {
                let path = format_steps(&self.steps);
                let place = Place { file: file.clone(), line, column };
                let nowhere = Tree::null(Position::default());
                Diagnostic { place, path, ..finding.locate(&file, nowhere.root()) }
            }
        }
    }
}
