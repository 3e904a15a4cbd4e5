//! Conditions and the diagnostics that explain them; with `--strict`, errors of both.
//!
//! Most conditions that are not as they should be come with a warning at the field that is to blame. The error takes the place of
//! that warning, and names the object and the condition; without one it stands where the document begins.

use std::collections::{BTreeMap, BTreeSet};

use xds_codec::{Diagnostic, Place, Severity};
use xds_routes::Documents;
use xds_routes::conditions::{ConditionReason, ConditionType, GRPC_CLIENTS};

use crate::offline::Unmet;

/// Diagnostics by their places, and where documents begin.
struct Placed<'d> {
    diagnostics: BTreeMap<&'d Place, Vec<(usize, &'d Diagnostic)>>,
    begins: BTreeSet<&'d Place>,
}

impl<'d> Placed<'d> {
    fn new(diagnostics: &'d [Diagnostic], documents: &'d Documents) -> Self {
        let mut by_place: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (at, one) in diagnostics.iter().enumerate() {
            by_place.entry(&one.place).or_default().push((at, one));
        }
        let begins = documents.values().map(|placed| &placed.document.place).collect();
        Self { diagnostics: by_place, begins }
    }

    /// The diagnostics within the document of a condition that say the same.
    fn that_say<'s>(
        &'s self,
        unmet: &'s Unmet,
    ) -> impl Iterator<Item = (usize, &'d Diagnostic)> + use<'s, 'd> {
        let next = self.begins.range::<&Place, _>(&unmet.place..).nth(1);
        let of_document =
            self.diagnostics.range::<&Place, _>(&unmet.place..).take_while(move |(place, _)| {
                place.file == unmet.place.file && next.is_none_or(|next| *place < next)
            });
        of_document.flat_map(|(_, found)| found).copied().filter(|(_, one)| {
            let (condition, found) = (&unmet.message, &one.message);
            !condition.is_empty() && (found.contains(condition) || condition.contains(found))
        })
    }
}

/// Leaves out the conditions of which a diagnostic says the same.
pub(super) fn unexplained(unmet: &[Unmet], diagnostics: &[Diagnostic], documents: &Documents) -> Vec<Unmet> {
    let placed = Placed::new(diagnostics, documents);
    unmet.iter().filter(|one| placed.that_say(one).next().is_none()).cloned().collect()
}

/// Turns conditions into errors, in place of the warnings that say the same; the notes among the conditions stay. Policies that
/// are not supported become errors where they stand.
pub(super) fn make_errors(diagnostics: &mut Vec<Diagnostic>, unmet: &mut Vec<Unmet>, documents: &Documents) {
    let placed = Placed::new(diagnostics, documents);
    let mut errors = Vec::new();
    // By warning: a reference that fails is the same fault at every parent.
    let mut told: BTreeMap<usize, BTreeSet<(ConditionType, ConditionReason)>> = BTreeMap::new();
    for one in unmet.extract_if(.., |one| error_code(one).is_some()) {
        let mut is_said = false;
        for (at, warning) in placed.that_say(&one).filter(|(_, found)| found.severity == Severity::Warning) {
            is_said = true;
            if !told.entry(at).or_default().insert((one.kind, one.reason)) {
                continue;
            }
            let message = [&one.message, &warning.message].into_iter().min_by_key(|text| text.len());
            let said = Unmet { message: message.cloned().unwrap_or_default(), ..one.clone() };
            let message = said.to_string();
            errors.push(Diagnostic { severity: Severity::Error, message, ..warning.clone() });
        }
        if !is_said {
            errors.extend(error_of(&one));
        }
    }
    let mut at = 0..;
    diagnostics.retain(|_| at.next().is_none_or(|at| !told.contains_key(&at)));
    for policy in diagnostics.iter_mut().filter(|one| one.code == UNSUPPORTED_POLICY) {
        policy.severity = Severity::Error;
    }
    diagnostics.extend(errors);
}

/// The code of the warning at a policy that is not supported.
const UNSUPPORTED_POLICY: &str = "unsupported-policy";

/// The code of the error for a condition that shows that something is not served as intended. Left out are Envoys that do not
/// listen, because other conditions cause that; unsupported policies, which have diagnostics; and losses of gRPC clients, which may
/// not be affected.
fn error_code(unmet: &Unmet) -> Option<&'static str> {
    match unmet.kind {
        ConditionType::Accepted => Some("not-accepted"),
        ConditionType::ResolvedRefs => Some("unresolved-reference"),
        ConditionType::PartiallyInvalid => (unmet.of != GRPC_CLIENTS).then_some("partially-invalid"),
        ConditionType::Conflicted
        | ConditionType::OverlappingTlsConfig
        | ConditionType::PolicyAffected
        | ConditionType::Programmed => None,
    }
}

fn error_of(unmet: &Unmet) -> Option<Diagnostic> {
    let code = error_code(unmet)?;
    Some(Diagnostic {
        severity: Severity::Error,
        code,
        place: unmet.place.clone(),
        path: String::new(),
        message: unmet.to_string(),
        suggestion: None,
        related: Vec::new(),
        is_sensitive: false,
    })
}
