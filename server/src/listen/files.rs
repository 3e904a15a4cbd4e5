//! Open files: raises their limit as far as the system allows, and divides them so that no port takes those of another.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{info, warn};

/// How many connections each port may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    pub(crate) xds: usize,
    pub(crate) admin: usize,
    pub(crate) probe: usize,
}

/// Raises the soft limit of open files to the hard one. Returns how many files the process may have open by now.
pub(crate) fn raise_limit() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: maximum, maximum };
    let is_raised = current != maximum
        && match setrlimit(Resource::Nofile, wanted) {
            Ok(()) => true,
            Err(error) => {
                warn!(%error, "the limit of open files cannot be raised");
                false
            }
        };
    let limit = if is_raised { maximum } else { current };
    let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    info!(limit, "open files");
    limit
}

impl Shares {
    /// Shares out `n_files` between the ports; none gets more than it is `wanted`.
    pub(crate) fn new(n_files: usize, wanted: Self) -> Self {
        let rest = n_files - RESERVED.min(n_files / 4);
        let probe = wanted.probe.min(rest / 16).max(1);
        let admin = wanted.admin.min(rest / 4).max(1);
        let xds = wanted.xds.min(rest.saturating_sub(probe + admin)).max(1);
        if xds < wanted.xds {
            info!(
                xds,
                admin,
                probe,
                wanted = wanted.xds,
                "the limit of open files allows fewer connections; raise it with `ulimit -n` or LimitNOFILE"
            );
        }
        Self { xds, admin, probe }
    }
}

/// For the store, watched files, webhooks, and the runtime's own.
const RESERVED: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_takes_the_files_of_another() {
        let wanted = Shares { xds: 200_000, admin: 256, probe: 64 };
        assert_eq!(Shares::new(1 << 20, wanted), wanted);
        assert_eq!(Shares::new(1024, wanted), Shares { xds: 528, admin: 192, probe: 48 });
        for n_files in 0..5000 {
            let Shares { xds, admin, probe } = Shares::new(n_files, wanted);
            assert!(xds >= 1 && admin >= 1 && probe >= 1);
            assert!(n_files < 16 || xds + admin + probe <= n_files - n_files.min(1024) / 4, "{n_files}");
        }
    }
}
