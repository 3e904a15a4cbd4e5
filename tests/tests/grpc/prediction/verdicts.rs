//! What the lint says, and how often it is right.

use std::fmt;

use xds_cache::{Profile, Resource};
use xds_codec::{Effect, Language};

use crate::prediction::cases::{CODEC, Case, LENIENT};
use crate::prediction::clients::{Answer, Client};

/// What the lint says of a configuration.
pub(crate) struct Foreseen {
    pub(crate) is_refused: bool,
    reasons: Vec<String>,
}

impl fmt::Display for Foreseen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.reasons.is_empty() { "nothing" } else { "" })?;
        f.write_str(&self.reasons.join(" | "))
    }
}

/// The prediction for one client. `validate.rules` are Envoy's: gRPC clients check few of them.
pub(crate) fn predict(case: &Case, client: Client) -> Foreseen {
    let codec = if client == Client::Envoy { &*CODEC } else { &*LENIENT };
    let mut reasons = Vec::new();
    let mut resources: Vec<Resource> = Vec::new();
    for one in &case.resources {
        let faults = codec.resource_from_json(one).err().unwrap_or_default();
        let is_ours =
            |code: &str| code == "missing-name" || client != Client::Envoy && STRICTER.contains(&code);
        let faults = faults.iter().filter(|fault| !is_ours(fault.code));
        reasons.extend(faults.map(|fault| format!("{} {}: {}", fault.code, fault.path, fault.message)));
        resources.extend(LENIENT.resource_from_json(one).ok());
    }
    let (profile, language) = match client {
        Client::Envoy => (Profile::Envoy, None),
        Client::Grpcio => (Profile::Grpc, Some(Language::Core)),
        Client::GrpcGo => (Profile::Grpc, Some(Language::Go)),
        Client::GrpcJs => (Profile::Grpc, Some(Language::Js)),
        Client::GrpcJava => (Profile::Grpc, Some(Language::Java)),
    };
    for one in LENIENT.lint_profile(resources.iter(), profile) {
        let refuses = matches!(one.effect, Effect::Crashes | Effect::Rejected);
        if refuses && language.is_none_or(|language| one.languages.contains(&language)) {
            reasons.push(format!("{} {:?} {}: {}", one.row, one.effect, one.path, one.message));
        }
    }
    Foreseen { is_refused: !reasons.is_empty(), reasons }
}

/// What the server refuses for every client because of Envoys, though gRPC clients take it.
const STRICTER: [&str; 2] = ["duplicate-domain", "duplicate-virtual-host"];

/// Counts of the four outcomes.
#[derive(Debug, Default)]
pub(crate) struct Agreement {
    n_refused: usize,
    n_missed: usize,
    n_accepted: usize,
    n_false_alarms: usize,
}

impl Agreement {
    /// Counts one case, and names a disagreement.
    pub(crate) fn count(&mut self, answer: &Answer, foreseen: &Foreseen) -> Option<&'static str> {
        match (answer.is_refused(), foreseen.is_refused) {
            (true, is_foreseen) => {
                self.n_refused += 1;
                self.n_missed += usize::from(!is_foreseen);
                (!is_foreseen).then_some("MISSED")
            }
            (false, is_foreseen) => {
                self.n_accepted += 1;
                self.n_false_alarms += usize::from(is_foreseen);
                is_foreseen.then_some("FALSE ALARM")
            }
        }
    }
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |part: usize, of: usize| 100.0 * part as f64 / of.max(1) as f64;
        write!(
            f,
            "{} refused, {} of them not foreseen ({:.1} %); {} accepted, {} of them false alarms ({:.1} %)",
            self.n_refused,
            self.n_missed,
            share(self.n_missed, self.n_refused),
            self.n_accepted,
            self.n_false_alarms,
            share(self.n_false_alarms, self.n_accepted)
        )
    }
}
