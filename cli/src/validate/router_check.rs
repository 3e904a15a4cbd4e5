//! Files of Envoy's `router_check_tool`, as tests of a RouteConfiguration.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use xds_cache::{GroupName, Profile, ResourceType};
use xds_codec::{Diagnostic, Place, Severity, Syntax, echo, nearest};
use xds_control::route_tests::{Loose, read_router_checks};
use xds_routes::{DocumentKey, Kind};

use super::target::diagnostic;
use crate::offline::{Offline, nowhere};

/// The tests of a file, and what is wrong with it.
#[derive(Default)]
pub(super) struct RouterChecks {
    /// The tests, once for each group that has the RouteConfiguration.
    pub(super) loose: Vec<Loose>,
    pub(super) faults: Vec<Diagnostic>,
    /// The text of the file, to find the places of tests.
    pub(super) texts: Vec<(Arc<str>, Arc<[u8]>)>,
}

/// Reads a file of the tool.
pub(super) fn read(path: &Path, route_config: &str, offline: &Offline) -> RouterChecks {
    let file: Arc<str> = path.display().to_string().into();
    let failed = |faults: Vec<Diagnostic>| RouterChecks { faults, ..RouterChecks::default() };
    let at = |line: u32| Place { file: Arc::clone(&file), line, column: line };
    let fault = |code, message: String| vec![diagnostic(Severity::Error, code, at(0), message)];
    let bytes: Arc<[u8]> = match read_file(path, offline.limits.max_bytes) {
        Ok(bytes) => bytes.into(),
        Err(why) => return failed(fault("unreadable", format!("the file cannot be read: {why}"))),
    };
    let trees = match xds_codec::parse(&file, &bytes, Syntax::of_file(&file), &offline.limits) {
        Ok(trees) => trees,
        Err(faults) => return failed(faults),
    };
    let [tree] = &*trees else {
        let message = format!("the file has {} documents; a file of router_check_tool has one", trees.len());
        return failed(fault("unreadable", message));
    };
    let test = match read_router_checks(&file, tree, route_config) {
        Ok(test) => test,
        Err(faults) => return failed(faults),
    };
    let groups = groups(route_config, offline);
    if groups.is_empty() {
        return failed(vec![unknown(route_config, offline)]);
    }
    let key = DocumentKey::new(Kind::RouterCheck, "default", &file);
    let loose =
        groups.into_iter().map(|group| Loose { key: key.clone(), place: at(1), group, test: test.clone() });
    RouterChecks { loose: loose.collect(), faults: Vec::new(), texts: vec![(file, bytes)] }
}

fn read_file(path: &Path, limit: usize) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let limit_plus_one = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    let file = File::open(path).map_err(|error| error.to_string())?;
    let n = file.take(limit_plus_one).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if n > limit { Err(format!("it has more than {limit} bytes")) } else { Ok(bytes) }
}

/// The groups that have the RouteConfiguration themselves.
fn groups(route_config: &str, offline: &Offline) -> Vec<GroupName> {
    let groups = offline.groups();
    let has = groups.iter().filter(|(_, group)| {
        let mut resources = group.resources_for(Profile::Envoy);
        resources.any(|(key, _)| {
            key.resource_type == ResourceType::RouteConfiguration && &*key.name == route_config
        })
    });
    has.map(|(name, _)| name.clone()).collect()
}

fn unknown(route_config: &str, offline: &Offline) -> Diagnostic {
    let groups = offline.groups();
    let all = groups.iter().flat_map(|(_, group)| group.resources_for(Profile::Envoy));
    let names: Vec<&str> = all
        .filter(|(key, _)| key.resource_type == ResourceType::RouteConfiguration)
        .map(|(key, _)| &*key.name)
        .collect();
    let hint = match (nearest(route_config, names.iter().copied()), &*names) {
        (Some(likely), _) => format!("did you mean {}?", echo(likely)),
        (None, []) => "the files have none for Envoys".to_owned(),
        (None, names) => {
            let shown: Vec<String> = names.iter().take(MAX_NAMES).map(|name| echo(name)).collect();
            format!("there are {}", shown.join(", "))
        }
    };
    let message = format!("--route-config: there is no RouteConfiguration {}; {hint}", echo(route_config));
    diagnostic(Severity::Error, "unknown-route-config", nowhere(), message)
}

/// Names in a message.
const MAX_NAMES: usize = 10;
