//! Where the access policy and the audit log are.

use std::path::{Path, PathBuf};

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
    /// The audit log.
    pub audit_log: Option<AuditLog>,
    /// True if nothing is written that would not be on record.
    pub needs_audit: bool,
}

impl AccessConfig {
    pub(super) fn new(args: &AccessArgs) -> Result<Self, ConfigError> {
        Ok(Self {
            policy: args.access_policy.clone(),
            token_file: args.admin_token_file.clone(),
            needs_principals: false,
            needs_issuers: false,
            shows_tokens: false,
            is_dry_run: args.access_dry_run,
            audit_log: AuditLog::new(args)?,
            needs_audit: args.audit_required,
        })
    }
}

/// The audit log, as a file or on standard output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditLog {
    /// The file; `-` is standard output.
    pub path: PathBuf,
    /// The size of a file at which a new one begins; `None` for none.
    pub max_bytes: Option<usize>,
    /// How many old files are kept; at least 1.
    pub n_kept: u32,
    /// True if each line is on disk before anything goes on.
    pub is_synced: bool,
}

impl AuditLog {
    /// Returns `true` if the lines go to standard output.
    #[must_use]
    pub fn is_stdout(&self) -> bool {
        self.path == Path::new("-")
    }

    fn new(args: &AccessArgs) -> Result<Option<Self>, ConfigError> {
        let of_file =
            [(args.audit_max_bytes.is_some(), "audit-max-bytes"), (args.audit_fsync, "audit-fsync")];
        let given = |flags: &[(bool, &'static str)]| {
            flags.iter().find(|(is_given, _)| *is_given).map(|(_, flag)| *flag)
        };
        let Some(path) = args.audit_log.clone() else {
            let flag = given(&of_file).or(given(&[(args.audit_required, "audit-required")]));
            return flag.map_or(Ok(None), |flag| Err(ConfigError::Needs { flag, other: "audit-log" }));
        };
        let (max_bytes, n_kept) = (args.audit_max_bytes, args.audit_keep);
        let log = Self { path, max_bytes, n_kept, is_synced: args.audit_fsync };
        match given(&of_file) {
            Some(flag) if log.is_stdout() => Err(ConfigError::Contradiction { flag, other: "audit-log=-" }),
            _ => Ok(Some(log)),
        }
    }
}
