//! The rules for listeners that emitted messages could break.

use std::collections::BTreeSet;

use super::{All, At};

impl All {
    pub(super) fn listener(&mut self, at: At<'_>) {
        self.only("B38", at, &["name", "api_listener"]);
        let Some(manager) = at.get("api_listener").and_then(|api| api.get("api_listener")) else {
            return self.fault("B17", at, "no api_listener");
        };
        if manager.type_name()
            != "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
        {
            return self.fault("B18", at, manager.type_name());
        }
        if manager.get("xff_num_trusted_hops").is_some() {
            self.fault("B23", at, "xff_num_trusted_hops");
        }
        if manager.get("original_ip_detection_extensions").is_some() {
            self.fault("B24", at, "original_ip_detection_extensions");
        }
        self.only(
            "B1",
            manager,
            &[
                "stat_prefix",
                "rds",
                "http_filters",
                "xff_num_trusted_hops",
                "original_ip_detection_extensions",
            ],
        );
        let configuration = match manager.get("rds") {
            None => return self.fault("B19", at, "no rds"),
            Some(rds) => {
                self.config_source("B20", rds.get("config_source"), at);
                rds.text("route_config_name")
            }
        };
        if configuration.is_empty() {
            self.fault("B21", at, "route_config_name");
        }
        self.wants("routes", configuration, at);
        let has_sessions = self.http_filters(manager);
        self.session_listeners.insert(configuration.to_owned(), has_sessions);
    }

    fn http_filters(&mut self, manager: At<'_>) -> bool {
        let filters = manager.list("http_filters");
        if filters.is_empty() {
            self.fault("B26", manager, "no filters");
        }
        let mut names = BTreeSet::new();
        let mut has_sessions = false;
        for (index, filter) in filters.iter().enumerate() {
            if !names.insert(filter.text("name")) {
                self.fault("B27", *filter, "name twice");
            }
            if filter.text("name").is_empty() {
                self.fault("B28", *filter, "no name");
            }
            let is_optional = filter.is_true("is_optional");
            if filter.is_true("disabled") {
                self.fault("B37", *filter, "disabled");
            }
            let is_last = index + 1 == filters.len();
            match filter.get("typed_config").map(At::type_name) {
                Some("envoy.extensions.filters.http.router.v3.Router") if is_last => {}
                Some("envoy.extensions.filters.http.router.v3.Router") => {
                    self.fault("B34", *filter, "router");
                }
                Some("envoy.extensions.filters.http.stateful_session.v3.StatefulSession") if is_optional => {
                    has_sessions = filter.text("name") == "envoy.filters.http.stateful_session";
                    if let Some(config) = filter.get("typed_config") {
                        self.stateful_session(config);
                    }
                }
                Some("envoy.extensions.filters.http.fault.v3.HTTPFault") => {}
                Some(_) => self.fault("B29", *filter, "unknown filter"),
                None => self.fault("B30", *filter, "no config"),
            }
            if is_last
                && filter.get("typed_config").map(At::type_name)
                    != Some("envoy.extensions.filters.http.router.v3.Router")
            {
                self.fault("B33", *filter, "no router at the end");
            }
        }
        has_sessions
    }

    /// Rows B155 to B157 and B160.
    pub(super) fn stateful_session(&mut self, at: At<'_>) {
        self.only("B160", at, &["session_state"]);
        let Some(state) = at.get("session_state").and_then(|state| state.get("typed_config")) else { return };
        if state.type_name() != "envoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionState" {
            return self.fault("B155", at, state.type_name());
        }
        let Some(cookie) = state.get("cookie") else { return self.fault("B156", at, "no cookie") };
        self.only("B1", cookie, &["name", "path", "ttl"]);
        if cookie.text("name").is_empty() {
            self.fault("B156", at, "no name");
        }
        self.duration("B157", cookie, "ttl", |_| true);
    }
}
