//! Resources for gRPC clients: what comes out for each feature, what holds for every plan, and that the judges judge.

mod checks;
mod goldens;
mod plans;
mod properties;

use std::sync::LazyLock;

use serde_json::Value as Json;
use xds_cache::{Profile, Resource};
use xds_codec::{Codec, Effect};

use super::checker;
use super::grpc;
use crate::emit::{Emitted, FoundBy, GrpcLoss, all};
use crate::input::Options;
use crate::plan::Plan;

static CODEC: LazyLock<Codec> = LazyLock::new(|| Codec::new().expect("built in"));

/// The outcome of a plan.
struct Outcome {
    /// The messages, and how each is found.
    emitted: Vec<(FoundBy, Json)>,
    /// The same, encoded.
    resources: Vec<Resource>,
    losses: Vec<GrpcLoss>,
}

/// Emits the plan and encodes it.
fn emit(plan: &Plan, options: &Options) -> Outcome {
    let mut losses = Vec::new();
    let emitted = all(|emit| losses = grpc(plan, options, emit));
    let messages =
        |one: &Emitted<'_>| one.messages().into_iter().map(|message| (one.found_by, message)).collect();
    let mut emitted: Vec<(FoundBy, Json)> = emitted.iter().flat_map::<Vec<_>, _>(messages).collect();
    // Listeners, then their routes, each by name; the rest as it is emitted.
    emitted.sort_by_cached_key(|(_, message)| {
        let name = message["name"].as_str().unwrap_or_default().to_owned();
        match (message.get("api_listener"), message.get("virtual_hosts")) {
            (Some(_), _) => (0, name),
            (None, Some(_)) => (1, name),
            (None, None) => (2, String::new()),
        }
    });
    let encode = |(_, message): &(FoundBy, Json)| match CODEC.resource_from_json(message) {
        Ok(resource) => resource,
        Err(diagnostics) => {
            let diagnostics: Vec<String> = diagnostics.iter().map(ToString::to_string).collect();
            panic!("{}\n{message:#}", diagnostics.join("\n"))
        }
    };
    let resources = emitted.iter().map(encode).collect();
    Outcome { emitted, resources, losses }
}

impl Outcome {
    /// The messages as the codec understood them.
    fn messages(&self) -> Vec<Json> {
        self.resources.iter().map(|resource| CODEC.to_json(resource)).collect()
    }

    /// The faults that the checker and the codec's lint find.
    fn faults(&self) -> Vec<String> {
        let mut faults = checker::faults(&self.messages());
        let findings = CODEC.lint_profile(self.resources.iter(), Profile::Grpc);
        let is_meant = |row, effect| match effect {
            // An entry of weight 0 stays so that the clusters stay the same (C15).
            // The plan decides which clusters have sessions, and plans made for tests decide as they like (C87).
            Effect::Ignored => ["B114", "C87"].contains(&row),
            Effect::Crashes | Effect::Rejected | Effect::FailsAll | Effect::Fails | Effect::Differs => false,
        };
        let told = findings.into_iter().filter(|finding| !is_meant(finding.row, finding.effect));
        faults.extend(
            told.map(|finding| format!("lint {} {}: {}", finding.row, finding.resource, finding.message)),
        );
        faults
    }
}
