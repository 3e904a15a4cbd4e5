//! The rules for route configurations that emitted messages could break.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use super::{All, At};

impl All {
    pub(super) fn configuration(&mut self, at: At<'_>) {
        self.only("B135", at, &["name", "virtual_hosts"]);
        let mut domains = BTreeSet::new();
        for host in at.list("virtual_hosts") {
            self.only("B137", host, &["name", "domains", "routes"]);
            let found = host.list("domains");
            if found.is_empty() {
                self.fault("B84", host, "no domains");
            }
            for domain in found.iter().filter_map(|domain| domain.value.as_str()) {
                let inner = domain.strip_prefix('*').or(domain.strip_suffix('*')).unwrap_or(domain);
                if domain.is_empty() || inner.contains('*') {
                    self.fault("B84", host, domain);
                }
                if !domains.insert(domain) {
                    self.fault("B85", host, domain);
                }
            }
            let routes = host.list("routes");
            if routes.is_empty() {
                self.fault("B81", host, "no routes: C-core refuses that");
            }
            let mut names = BTreeSet::new();
            for route in routes {
                if !names.insert(route.text("name")) {
                    self.fault("B138", route, "route name twice");
                }
                self.route(route, at.text("name"));
            }
        }
    }

    fn route(&mut self, at: At<'_>, configuration: &str) {
        self.only("B109", at, &["name", "match", "route", "typed_per_filter_config"]);
        match at.get("match") {
            Some(found) => self.route_match(found),
            None => self.fault("B86", at, "no match"),
        }
        match at.get("route") {
            Some(action) => self.action(action),
            None => self.fault("B109", at, "no route action"),
        }
        let overrides = at.value.get("typed_per_filter_config").and_then(Json::as_object);
        for (key, value) in overrides.into_iter().flatten() {
            self.with_sessions.insert(configuration.to_owned());
            self.override_of(key, At { value, ..at });
        }
    }

    /// Rows B134 and B159.
    fn override_of(&mut self, key: &str, at: At<'_>) {
        if key != "envoy.filters.http.stateful_session" {
            self.fault("B134", at, "override of no filter");
        }
        if at.type_name() != "envoy.config.route.v3.FilterConfig" || !at.is_true("is_optional") {
            return self.fault("B134", at, "override is not optional");
        }
        self.only("B37", at, &["is_optional", "config"]);
        let config = at.get("config");
        match config.map(At::type_name) {
            Some("envoy.extensions.filters.http.stateful_session.v3.StatefulSessionPerRoute") => {
                match config.and_then(|config| config.get("stateful_session")) {
                    Some(session) if session.get("session_state").is_some() => self.stateful_session(session),
                    _ => self.fault("B159", at, "no session"),
                }
            }
            _ => self.fault("B169", at, "kind of override"),
        }
    }

    fn route_match(&mut self, at: At<'_>) {
        // Everything else in a match is ignored, so the route matches more than is written, or it is rejected.
        self.only(
            "B96",
            at,
            &[
                "prefix",
                "path",
                "safe_regex",
                "case_sensitive",
                "headers",
                "runtime_fraction",
                "query_parameters",
            ],
        );
        if at.get("query_parameters").is_some() {
            self.fault("B94", at, "query_parameters");
        }
        let path =
            ["prefix", "path", "safe_regex"].into_iter().find_map(|field| Some((field, at.get(field)?)));
        match path {
            None => self.fault("B86", at, "no path specifier"),
            Some(("safe_regex", regex)) => self.regex("B90", regex),
            Some((field, text)) => {
                let text = text.value.as_str().unwrap_or_default();
                let n_slashes = text.bytes().filter(|byte| *byte == b'/').count();
                let is_fine = match field {
                    "path" => n_slashes == 2 && !text.ends_with('/'),
                    _ => n_slashes <= 2,
                };
                let is_empty = text.is_empty() && field == "prefix";
                if !is_empty && (!is_fine || !text.starts_with('/') || text.contains("//")) {
                    self.fault("B92", at, text);
                }
            }
        }
        if at.get("case_sensitive").is_none() {
            self.fault("B93", at, "case_sensitive is not explicit");
        }
        at.list("headers").into_iter().for_each(|header| self.header(header));
        let Some(fraction) = at.get("runtime_fraction") else { return };
        self.only("B99", fraction, &["default_value"]);
        let Some(share) = fraction.get("default_value") else { return self.fault("B98", at, "no default") };
        let most = match share.text("denominator") {
            "" | "HUNDRED" => 100,
            "TEN_THOUSAND" => 10_000,
            "MILLION" => 1_000_000,
            _ => return self.fault("B97", at, "denominator"),
        };
        if share.number("numerator").unwrap_or_default() > most {
            self.fault("C10", at, "numerator above the denominator");
        }
    }

    fn header(&mut self, at: At<'_>) {
        let name = at.text("name");
        let is_hidden = name.starts_with(':') || name.ends_with("-bin") || name.starts_with("grpc-");
        let is_of_transport = ["content-type", "user-agent", "host", "te"].contains(&name);
        if name.is_empty() || is_hidden || is_of_transport || name.to_ascii_lowercase() != name {
            self.fault("B107", at, name);
        }
        self.only("B108", at, &["name", "string_match", "present_match"]);
        match (at.get("string_match"), at.is_true("present_match")) {
            (None, true) => {}
            (Some(matcher), false) => match (matcher.get("exact"), matcher.get("safe_regex")) {
                (Some(_), None) => self.only("B101", matcher, &["exact"]),
                (None, Some(regex)) => {
                    self.only("B101", matcher, &["safe_regex"]);
                    self.regex("B103", regex);
                }
                _ => self.fault("B105", at, "string_match"),
            },
            _ => self.fault("B100", at, "no specifier"),
        }
    }

    fn action(&mut self, at: At<'_>) {
        self.only("B121", at, &["cluster", "weighted_clusters", "max_stream_duration", "retry_policy"]);
        match (at.get("cluster"), at.get("weighted_clusters")) {
            (Some(cluster), None) => match cluster.value.as_str() {
                Some(name) if !name.is_empty() => self.wants("cluster", name, at),
                _ => self.fault("B111", at, "no cluster"),
            },
            (None, Some(weighted)) => self.weighted_clusters(weighted),
            _ => self.fault("B110", at, "no cluster specifier"),
        }
        if let Some(limit) = at.get("max_stream_duration") {
            self.only("B121", limit, &["max_stream_duration", "grpc_timeout_header_max"]);
            self.duration("B122", limit, "max_stream_duration", |_| true);
            self.duration("B122", limit, "grpc_timeout_header_max", |_| true);
        }
        if let Some(retry) = at.get("retry_policy") {
            self.retry_policy(retry);
        }
    }

    fn weighted_clusters(&mut self, at: At<'_>) {
        self.only("B117", at, &["clusters"]);
        let clusters = at.list("clusters");
        if clusters.is_empty() {
            self.fault("B112", at, "no clusters");
        }
        let mut sum = 0;
        let mut names = BTreeSet::new();
        for cluster in clusters {
            self.only("B116", cluster, &["name", "weight"]);
            let name = cluster.text("name");
            if name.is_empty() {
                self.fault("B115", at, "no name");
            }
            if !names.insert(name) {
                self.fault("C15", at, "cluster twice");
            }
            match cluster.number("weight") {
                Some(weight) => sum += weight,
                None => self.fault("B114", at, "no weight"),
            }
            self.wants("cluster", name, at);
        }
        if !(1..=u64::from(u32::MAX)).contains(&sum) {
            self.fault("B113", at, "sum of weights");
        }
    }

    fn retry_policy(&mut self, at: At<'_>) {
        self.only("B132", at, &["retry_on", "num_retries", "retry_back_off"]);
        if at.number("num_retries").is_some_and(|n| !(1..=4).contains(&n)) {
            self.fault("B127", at, "num_retries");
        }
        const KNOWN: [&str; 5] =
            ["cancelled", "deadline-exceeded", "internal", "resource-exhausted", "unavailable"];
        if !at.text("retry_on").split(',').all(|condition| KNOWN.contains(&condition)) {
            self.fault("B128", at, at.text("retry_on"));
        }
        let Some(back_off) = at.get("retry_back_off") else { return };
        let seconds = |field| back_off.text(field).strip_suffix('s')?.parse::<f64>().ok();
        if back_off.get("base_interval").is_none() {
            self.fault("B129", at, "no base_interval");
        }
        self.duration("B129", back_off, "base_interval", |seconds| seconds > 0.0);
        let base = seconds("base_interval").unwrap_or_default();
        self.duration("B130", back_off, "max_interval", |seconds| seconds > 0.0 && seconds >= base);
    }
}
