//! Webhooks that a rollout calls.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::fields::{At, Faults};
use crate::spec::analysis::url;
use xds_units::Span;

/// One webhook. It is called with what Flagger sends, and says "go" with any status 2xx.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hook {
    /// Its name; unique in a rollout.
    pub name: String,
    /// When it is called, and the effect of its answer.
    #[serde(rename = "type")]
    pub kind: HookKind,
    /// The address to call.
    pub url: String,
    /// How long a call may take.
    pub timeout: Span,
    /// How often a call that failed is repeated before it counts as failed.
    pub retries: u32,
    /// The metadata to hand over besides.
    pub metadata: BTreeMap<String, String>,
}

/// When a webhook is called; the types of Flagger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HookKind {
    /// Before anything; the rollout waits until it says go.
    ConfirmRollout,
    /// Before the first step; a failure aborts.
    PreRollout,
    /// With every measurement; a failure is a bad measurement.
    Rollout,
    /// Before the canary gets more; the rollout waits until it says go.
    ConfirmTrafficIncrease,
    /// Before the promotion; the rollout waits until it says go.
    ConfirmPromotion,
    /// After the end, however it was; its answer does nothing.
    PostRollout,
    /// Again and again; going is going back: the rollout aborts.
    Rollback,
    /// With every event; its answer does nothing.
    Event,
}

impl Hook {
    pub(crate) fn read(at: &At<'_>, faults: &mut Faults) -> Option<Self> {
        let mut fields = at.object(faults)?;
        let name = fields.need("name", faults).and_then(|at| at.text(MAX_NAME_BYTES, faults));
        let kind = fields.need("type", faults).and_then(|at| at.choice(&KINDS, faults));
        let url = fields.need("url", faults).and_then(|at| url(&at, faults));
        let timeout = fields.take("timeout").map(|at| at.span(Span::from_millis(1), faults));
        let retries = fields.take("retries").map(|at| at.integer(0, MAX_RETRIES, faults));
        let metadata = fields.take("metadata").and_then(|at| read_metadata(&at, faults)).unwrap_or_default();
        fields.finish(faults);
        let timeout = timeout.unwrap_or(Some(DEFAULT_TIMEOUT))?;
        if timeout > MAX_TIMEOUT {
            faults.add(&format!("{}/timeout", at.pointer), format!("at most {MAX_TIMEOUT}"));
        }
        let retries = u32::try_from(retries.unwrap_or(Some(0))?).ok()?;
        Some(Self { name: name?.to_owned(), kind: kind?, url: url?, timeout, retries, metadata })
    }
}

fn read_metadata(at: &At<'_>, faults: &mut Faults) -> Option<BTreeMap<String, String>> {
    let fields = at.object(faults)?;
    let mut metadata = BTreeMap::new();
    for (name, at) in fields.entries() {
        if metadata.len() == MAX_METADATA {
            faults.add(&at.pointer, format!("at most {MAX_METADATA} entries are allowed"));
            break;
        }
        if let Some(text) = at.text(MAX_METADATA_BYTES, faults) {
            metadata.insert(name.to_owned(), text.to_owned());
        }
    }
    Some(metadata)
}

impl HookKind {
    /// How each kind is written.
    pub fn names() -> impl Iterator<Item = &'static str> {
        KINDS.iter().map(|(name, _)| *name)
    }
}

const KINDS: [(&str, HookKind); 8] = [
    ("confirm-rollout", HookKind::ConfirmRollout),
    ("pre-rollout", HookKind::PreRollout),
    ("rollout", HookKind::Rollout),
    ("confirm-traffic-increase", HookKind::ConfirmTrafficIncrease),
    ("confirm-promotion", HookKind::ConfirmPromotion),
    ("post-rollout", HookKind::PostRollout),
    ("rollback", HookKind::Rollback),
    ("event", HookKind::Event),
];
/// The longest name.
const MAX_NAME_BYTES: usize = 253;
/// As in Flagger.
const DEFAULT_TIMEOUT: Span = Span::from_millis(10_000);
/// A call that takes longer is not a question but a job.
const MAX_TIMEOUT: Span = Span::from_millis(600_000);
/// The most repetitions of a call.
const MAX_RETRIES: u64 = 100;
/// The most entries of metadata.
const MAX_METADATA: usize = 32;
/// The longest value of metadata; load testers get whole commands.
const MAX_METADATA_BYTES: usize = 4_096;
