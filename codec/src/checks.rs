//! All checks of a message beyond its form.

use crate::finding::{Finding, Findings};
use crate::inner::Inner;
use crate::message::Message;
use crate::walk::walk;
use crate::{PgvLevel, Severity, lint, pgv};

/// Checks a message and all messages in it.
pub(crate) fn check(inner: &Inner, message: &Message, findings: &mut Findings) {
    walk(inner, message, &mut |path, message| {
        if inner.pgv != PgvLevel::Off {
            let facts = inner.facts.of(message.descriptor());
            pgv::check(&facts, message, path, &mut |violation: Finding| {
                let severity = if inner.pgv == PgvLevel::Warn { Severity::Warning } else { Severity::Error };
                findings.push(Finding { severity, ..violation });
            });
        }
        lint::check(message, path, findings);
    });
}
