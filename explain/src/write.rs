//! An explanation as text, to be read from top to bottom.

use std::fmt::Write as _;

use crate::balancer::Balancer;
use crate::explanation::{
    BranchSeen, Element, Endpoint, Explanation, Filter, Follows, Host, Limit, Outcome, Place, RouteSeen,
};
use crate::host::DomainKind;
use crate::route::Failure;
use crate::target::{MethodConfig, Target, Versioned};

/// The answers as text; those of clients that do the same are one.
#[must_use]
pub fn to_text(answers: &[Explanation], shows_all: bool) -> String {
    let texts: Vec<String> = together(answers).iter().map(|one| one.to_text(shows_all)).collect();
    texts.join("\n")
}

/// What clients hold for a target, as text; clients that hold the same are one.
#[must_use]
pub fn targets_to_text(targets: &[Target]) -> String {
    let texts: Vec<String> = together(targets).iter().map(Target::to_text).collect();
    texts.join("\n")
}

/// An answer for one client.
trait OfClient: Clone + PartialEq {
    fn client(&mut self) -> &mut String;
}

impl OfClient for Explanation {
    fn client(&mut self) -> &mut String {
        &mut self.client
    }
}

impl OfClient for Target {
    fn client(&mut self) -> &mut String {
        &mut self.client
    }
}

/// Answers that differ in the client alone, as one.
fn together<T: OfClient>(answers: &[T]) -> Vec<T> {
    let mut groups: Vec<T> = Vec::new();
    for answer in answers {
        let mut own = answer.clone();
        let client = std::mem::take(own.client());
        let alike = groups.iter_mut().find_map(|one| {
            own.client().clone_from(one.client());
            (own == *one).then_some(one)
        });
        match alike {
            Some(one) => {
                let all = one.client();
                *all = format!("{all}, {client}");
            }
            None => groups.push(answer.clone()),
        }
    }
    groups
}

impl Explanation {
    /// The answer as lines of text. `shows_all` adds the routes whose path does not fit.
    #[must_use]
    pub fn to_text(&self, shows_all: bool) -> String {
        let mut text = String::new();
        line(&mut text, "client", &self.client, None);
        if let Some(listener) = &self.listener {
            let mut about: Vec<&str> = Vec::new();
            about.extend(Some(&*listener.address).filter(|text| !text.is_empty()));
            about.extend(listener.chain.as_deref().filter(|chain| *chain != listener.element.name));
            about.push(&listener.why);
            element(&mut text, "listener", &listener.element, &about.join(", "));
            write_branches(&mut text, &listener.branches);
        }
        for step in &self.before {
            line(&mut text, "before", step, None);
        }
        if let Some(host) = &self.virtual_host {
            host.write(&mut text);
        }
        self.write_routes(&mut text, shows_all);
        for outcome in &self.outcomes {
            outcome.write(&mut text);
        }
        if self.has_more {
            line(&mut text, "and more", "more outcomes than are followed, or shares that are too fine", None);
        }
        if !self.unknown.is_empty() {
            line(&mut text, "depends on", &self.unknown.join(", "), None);
        }
        for note in &self.notes {
            line(&mut text, &format!("note {}", note.code), &note.message, None);
        }
        text
    }

    fn write_routes(&self, text: &mut String, shows_all: bool) {
        let shown = self
            .routes
            .iter()
            .filter(|route| shows_all || route.takes_path || self.routes.len() <= MAX_SHORT);
        let mut n_shown = 0;
        for route in shown {
            n_shown += 1;
            element(
                text,
                &format!(" route {} {}", route.index + 1, route.matches),
                &route.element,
                &route.about(),
            );
        }
        let n_hidden = self.routes.len() - n_shown + self.n_left_out;
        if n_hidden > 0 {
            line(text, " routes no", &format!("{n_hidden} more before these, whose path does not fit"), None);
        }
    }
}

impl Host {
    fn write(&self, text: &mut String) {
        let kind = match self.kind {
            DomainKind::Exact => "exact",
            DomainKind::Suffix => "suffix",
            DomainKind::Prefix => "prefix",
            DomainKind::Any => "any host",
        };
        let mut about = format!("`{}`, {kind}", self.domain);
        if !self.passed_over.is_empty() {
            let _ = write!(about, "; passed over: {}", quoted(&self.passed_over));
        }
        element(text, "virtual host", &self.element, &about);
        write_branches(text, &self.branches);
    }
}

fn write_branches(text: &mut String, branches: &[BranchSeen]) {
    for branch in branches {
        element(text, &format!(" branch {}", branch.matches), &branch.element, &branch.what);
    }
}

impl RouteSeen {
    fn about(&self) -> String {
        let failed: Vec<String> = self.failed.iter().map(Failure::say).collect();
        let mut about = match (&*failed, self.matches) {
            ([], _) => format!("path {}", self.path),
            (failed, "unknown") => format!("depends on {}", failed.join(", ")),
            (failed, _) => failed.join(", "),
        };
        if let Some(fraction) = self.fraction {
            let _ = write!(about, ", {fraction} of requests");
        }
        if self.matches == "no" && self.takes_path {
            let _ = write!(about, " (path {} would match)", self.path);
        }
        about
    }
}

impl Failure {
    /// ``header `x` is "1", wanted "on"``.
    fn say(&self) -> String {
        let name = self.name.as_deref().map(|name| format!(" `{name}`")).unwrap_or_default();
        let got = match (&self.got, self.on) {
            (Some(got), "path") => format!(" {got}"),
            (Some(got), _) => format!(" is {got:?}"),
            (None, "header" | "query" | "cookie" | "grpc") => " is absent".to_owned(),
            (None, _) => String::new(),
        };
        match (self.is_unknown, self.on) {
            (true, _) => format!("{}{name}", self.on),
            (false, "leftOut") => format!("left out by this client: {}", self.want),
            (false, "path") => format!("path{got} is not {}", self.want),
            (false, on) => format!("{on}{name}{got}, wanted {}", self.want),
        }
    }
}

impl Outcome {
    fn write(&self, text: &mut String) {
        let label = format!(" {}", self.share);
        let mut about = self.what.clone();
        if let Some(status) = &self.status {
            let _ = write!(about, "; answered {status}");
        }
        if let Some((weight, sum)) = self.weight {
            let _ = write!(about, "; weight {weight} of {sum}");
        }
        match &self.cluster {
            Some(cluster) => element(text, &label, cluster, &about),
            None => line(text, &label, &about, None),
        }
        if !self.when.is_empty() {
            line(text, "  if", &self.when.join(" and "), None);
        }
        if !self.endpoints.is_empty() {
            let shown: Vec<String> = self.endpoints.iter().map(Endpoint::say).collect();
            let more = if self.n_more_endpoints > 0 {
                format!(", and {} more", self.n_more_endpoints)
            } else {
                String::new()
            };
            line(text, "  endpoints", &format!("{}{more}", shown.join(", ")), None);
        }
        for rewrite in &self.rewrites {
            line(text, "  rewrite", rewrite, None);
        }
        if !self.limits.is_empty() {
            let limits: Vec<String> = self.limits.iter().map(Limit::say).collect();
            line(text, "  limits", &limits.join("; "), None);
        }
        if let Some(retry) = &self.retry {
            let on = retry.on.join(", ");
            let text_of = format!(
                "{on}: {} more, {}–{} ms ({})",
                retry.n_retries, retry.base_interval_ms, retry.max_interval_ms, retry.by
            );
            line(text, "  retries", &text_of, None);
        }
        if let Some(Follows { statuses, max, crosses_schemes, conditions }) = &self.follows {
            let statuses: Vec<String> = statuses.iter().map(u32::to_string).collect();
            let schemes = if *crosses_schemes { ", also to the other scheme" } else { "" };
            let only = match &**conditions {
                [] => String::new(),
                conditions => format!(", if {} let it", conditions.join(", ")),
            };
            let what = format!("{}: up to {max} in a row{schemes}{only}", statuses.join(", "));
            line(text, "  follows", &what, None);
        }
        if !self.hash.is_empty() {
            line(text, "  hash", &format!("by {}", self.hash.join("; then by ")), None);
        }
        if !self.filters.is_empty() {
            line(text, "  filters", &filters(&self.filters), None);
        }
        for mirror in &self.mirrors {
            line(text, "  mirror", &format!("{} to {}", mirror.share, mirror.cluster), None);
        }
    }
}

impl Target {
    fn to_text(&self) -> String {
        let mut text = String::new();
        line(&mut text, "client", &self.client, None);
        line(&mut text, "target", &format!("xds:///{}", self.target), None);
        for (label, resource) in [("listener", &self.listener), ("routes", &self.route_config)] {
            if let Some(Versioned { element: own, version }) = resource {
                let about = if version.is_empty() { String::new() } else { format!("version {version}") };
                element(&mut text, label, own, &about);
            }
        }
        if let Some(host) = &self.virtual_host {
            host.write(&mut text);
        }
        if let Some(fails) = &self.fails {
            line(&mut text, "calls fail", fails, None);
        }
        if !self.filters.is_empty() {
            line(&mut text, "filters", &filters(&self.filters), None);
        }
        for method in &self.method_config {
            method.write(&mut text);
        }
        if let Some(tree) = &self.load_balancing_config {
            line(&mut text, "balancing", &tree.policy, None);
            for child in &tree.children {
                child.write(&mut text, 1);
            }
        }
        for one in &self.left_out {
            element(
                &mut text,
                "left out",
                &one.element,
                &format!("{}: {} ({})", one.what, one.reason, one.row),
            );
        }
        if self.has_more {
            line(&mut text, "and more", "more routes or clusters than are shown", None);
        }
        for note in &self.notes {
            line(&mut text, "note", &note.message, None);
        }
        text
    }
}

impl MethodConfig {
    fn write(&self, text: &mut String) {
        let mut wanted = Vec::new();
        if let Some(name) = &self.name {
            let method = if name.method.is_empty() { "*" } else { &name.method };
            wanted.push(format!("{}/{method}", name.service));
        }
        wanted.extend(self.conditions.iter().cloned());
        wanted.extend(self.fraction.map(|share| format!("{share} of calls")));
        element(text, &format!(" method {}", self.index + 1), &self.route, &wanted.join(", "));
        let clusters: Vec<String> =
            self.clusters.iter().map(|one| format!("{} {}", one.share, one.cluster)).collect();
        if !clusters.is_empty() {
            line(text, "  to", &clusters.join(", "), None);
        }
        if let Some(fails) = &self.fails {
            line(text, "  fails", fails, None);
        }
        if let Some(timeout) = &self.timeout {
            line(text, "  timeout", timeout, None);
        }
        if let Some(retry) = &self.retry_policy {
            let codes = retry.retryable_status_codes.join(", ");
            let back_off = format!("{}–{}", retry.initial_backoff, retry.max_backoff);
            line(text, "  retries", &format!("{codes}: {} attempts, {back_off}", retry.max_attempts), None);
        }
        if let Some(session) = &self.session {
            line(text, "  session", &format!("{} `{}`", session.by, session.name), None);
        }
        if !self.overrides.is_empty() {
            line(text, "  overrides", &filters(&self.overrides), None);
        }
    }
}

impl Balancer {
    fn write(&self, text: &mut String, depth: usize) {
        let indent = " ".repeat(depth);
        let mut about: Vec<String> = Vec::new();
        about.extend(Some(self.child.clone()).filter(|child| !child.is_empty()));
        about.extend(Some(self.about.clone()).filter(|about| !about.is_empty()));
        about
            .extend(self.versions.first().map(|_| format!("version {}", self.versions.join(", endpoints "))));
        let place = self.cluster.as_ref().and_then(|cluster| cluster.place.as_ref());
        line(text, "", format!("{indent}{}  {}", self.policy, about.join("; ")).trim_end(), place);
        if !self.endpoints.is_empty() {
            let shown: Vec<String> = self.endpoints.iter().map(Endpoint::say).collect();
            let more = match self.n_more_endpoints {
                0 => String::new(),
                n => format!(", and {n} more"),
            };
            line(text, "", &format!("{indent} {}{more}", shown.join(", ")), None);
        }
        for child in &self.children {
            child.write(text, depth + 1);
        }
    }
}

impl Endpoint {
    fn say(&self) -> String {
        let zone = if self.zone.is_empty() { String::new() } else { format!(" zone {}", self.zone) };
        let priority =
            if self.priority == 0 { String::new() } else { format!(" priority {}", self.priority) };
        format!("{}{zone}{priority} {} {}", self.address, self.health.to_lowercase(), self.share)
    }
}

impl Limit {
    fn say(&self) -> String {
        let limit = match self.ms {
            None => "none".to_owned(),
            Some(ms) if ms % 60_000 == 0 => format!("{} m", ms / 60_000),
            Some(ms) if ms % 1000 == 0 => format!("{} s", ms / 1000),
            Some(ms) => format!("{ms} ms"),
        };
        let default = if self.is_default { ", default" } else { "" };
        format!("{} {limit} ({}{default})", self.of, self.by)
    }
}

fn element(text: &mut String, label: &str, element: &Element, about: &str) {
    let place = element.place.as_ref();
    let name = if element.name.is_empty() { "(no name)" } else { &element.name };
    line(text, label, &format!("{name}  {about}"), place);
}

/// One line: what it is, the text, and where it is written.
fn line(text: &mut String, label: &str, about: &str, place: Option<&Place>) {
    let _ = write!(text, "{label:<LABEL$} {about}");
    if let Some(at) = place.and_then(Place::shown) {
        let _ = write!(text, "  [{at}]");
    }
    text.push('\n');
}

fn filters(all: &[Filter]) -> String {
    let shown = all.iter().map(|filter| {
        let name = filter.name.strip_prefix("envoy.filters.http.").unwrap_or(&filter.name);
        let by = filter.by.map(|by| format!(" ({by})")).unwrap_or_default();
        format!("{name}: {}{by}", filter.effect)
    });
    shown.collect::<Vec<_>>().join("; ")
}

fn quoted(all: &[String]) -> String {
    all.iter().map(|one| format!("`{one}`")).collect::<Vec<_>>().join(", ")
}

/// The width of the first column.
const LABEL: usize = 14;

/// Up to as many routes, also those whose path does not fit are shown.
const MAX_SHORT: usize = 20;
