//! Where the access policy and the audit log are.

use std::path::PathBuf;

use crate::config::args::AccessArgs;
use crate::config::error::ConfigError;

/// The access policy and the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessConfig {
    /// The access policy.
    pub policy: Option<PathBuf>,
    /// The file with the token of the principal `admin`.
    pub token_file: Option<PathBuf>,
    /// True if the policy must have principals, because nothing else guards an admin port that others reach.
    pub needs_principals: bool,
    /// True if the policy must have issuers, because xDS clients have nothing else to prove who they are.
    pub needs_issuers: bool,
    /// True if others could read the tokens of xDS clients on their way.
    pub shows_tokens: bool,
    /// True if xDS clients are served also where they would be refused.
    pub is_dry_run: bool,
    /// The audit log; `-` is standard output.
    pub audit_log: Option<PathBuf>,
    /// True if nothing is written that would not be on record.
    pub needs_audit: bool,
}

impl AccessConfig {
    pub(super) fn new(args: &AccessArgs) -> Result<Self, ConfigError> {
        if args.audit_required && args.audit_log.is_none() {
            return Err(ConfigError::Needs { flag: "audit-required", other: "audit-log" });
        }
        Ok(Self {
            policy: args.access_policy.clone(),
            token_file: args.admin_token_file.clone(),
            needs_principals: false,
            needs_issuers: false,
            shows_tokens: false,
            is_dry_run: args.access_dry_run,
            audit_log: args.audit_log.clone(),
            needs_audit: args.audit_required,
        })
    }
}
