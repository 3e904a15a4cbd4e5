//! Checks for each kind of client: how an Envoy or a gRPC client treats valid raw resources.
//!
//! Raw resources are served to both unchanged (D3), but each kind of client rejects or ignores things that the other accepts.
//! [`Codec::lint_profile`] checks only the resources that clients of one profile can reach. [`reach`] finds these. The modules `grpc`,
//! [`envoy`] and [`session`] have the rules, each with its ID in `docs/design/protocol-rules.md`.
//!
//! Faults that `validate.rules` or the lints find for every client are not repeated here.

use std::collections::HashSet;

use xds_cache::{Profile, Resource, ResourceKey};

use crate::Codec;

mod aggregate;
mod any;
mod draws;
mod envoy;
mod finding;
mod grpc;
mod reach;
mod rule;
mod session;

pub use finding::{Effect, Language, ProfileFinding};

impl Codec {
    /// The parts of `resources` that clients of `profile` can reach and would reject, ignore or read differently, in the order of resources
    /// and paths.
    ///
    /// gRPC clients can reach listeners with an `api_listener`. gRPC servers can reach those with the name of a server template
    /// (`grpc/server?…`, `xds.resource.listening_address`). Envoys can reach all others, and every cluster. Each can also reach the
    /// resources that these name. Resources that cannot be decoded are left out.
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

    /// The resources that clients of `profile` can reach, in the sense of [`lint_profile`](Self::lint_profile).
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

/// Sorts findings and removes duplicates: a resource that clients and servers can reach is checked for both.
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
