//! The rules for clusters that emitted messages could break.

use super::{All, At};

impl All {
    pub(super) fn cluster(&mut self, at: At<'_>) {
        self.only(
            "B205",
            at,
            &[
                "name",
                "type",
                "cluster_type",
                "eds_cluster_config",
                "load_assignment",
                "lb_policy",
                "load_balancing_policy",
                "common_lb_config",
                "lrs_server",
                "circuit_breakers",
                "metadata",
            ],
        );
        if let Some(server) = at.get("lrs_server") {
            self.only("B190", server, &["self"]);
            if at.get("cluster_type").is_some() {
                self.fault("C70", at, "an aggregate that reports load");
            }
        }
        for thresholds in at.get("circuit_breakers").into_iter().flat_map(|it| it.list("thresholds")) {
            self.only("B192", thresholds, &["max_requests"]);
        }
        match (at.get("cluster_type"), at.text("type")) {
            (Some(custom), "") => self.aggregate(custom, at),
            (None, "EDS") => {
                let config = at.get("eds_cluster_config");
                self.config_source("B171", config.and_then(|config| config.get("eds_config")), at);
                let service = config.map(|config| config.text("service_name")).unwrap_or_default();
                let assignment = if service.is_empty() { at.text("name") } else { service };
                self.wants("endpoints", assignment, at);
            }
            (None, "LOGICAL_DNS") => self.logical_dns(at),
            _ => self.fault("B170", at, "type"),
        }
        // Round robin is the default, which the codec leaves out.
        if at.get("lb_policy").is_some() {
            self.fault("B182", at, at.text("lb_policy"));
        }
        if let Some(policy) = at.get("load_balancing_policy") {
            self.balancing(policy, "WrrLocality", &["wrr_locality.v3.WrrLocality"]);
        }
        let Some(common) = at.get("common_lb_config") else { return };
        self.only("B205", common, &["override_host_status"]);
        for status in common.get("override_host_status").into_iter().flat_map(|it| it.list("statuses")) {
            if !["UNKNOWN", "HEALTHY", "DRAINING"].contains(&status.value.as_str().unwrap_or_default()) {
                self.fault("B202", at, "override_host_status");
            }
        }
    }

    /// A list of policies of which every client knows the last one, and Go and Java all.
    fn balancing(&mut self, at: At<'_>, last: &str, known: &[&str]) {
        let mut types = Vec::new();
        for policy in at.list("policies") {
            let config = policy.get("typed_extension_config").and_then(|it| it.get("typed_config"));
            let Some(config) = config else { return self.fault("B186", at, "no config") };
            let name = config.type_name().to_owned();
            if !known.iter().any(|known| name == format!("envoy.extensions.load_balancing_policies.{known}"))
            {
                self.fault("B187", at, &name);
            }
            if let Some(children) = config.get("endpoint_picking_policy") {
                self.balancing(
                    children,
                    "RoundRobin",
                    &["least_request.v3.LeastRequest", "round_robin.v3.RoundRobin"],
                );
            }
            types.push(name);
        }
        if !types.last().is_some_and(|name| name.ends_with(&format!(".{last}"))) {
            self.fault("B186", at, "no policy that every client knows");
        }
    }

    fn aggregate(&mut self, custom: At<'_>, at: At<'_>) {
        let Some(config) = custom.get("typed_config") else { return self.fault("B175", at, "no config") };
        if config.type_name() != "envoy.extensions.clusters.aggregate.v3.ClusterConfig" {
            return self.fault("B175", at, config.type_name());
        }
        if custom.text("name") != "envoy.clusters.aggregate" {
            self.fault("B176", at, custom.text("name"));
        }
        let members = config.list("clusters");
        let members: Vec<String> =
            members.iter().filter_map(|it| it.value.as_str().map(str::to_owned)).collect();
        if members.is_empty() {
            self.fault("B177", at, "no members");
        }
        members.iter().for_each(|member| self.wants("cluster", member, at));
        self.members.insert(at.text("name").to_owned(), members);
    }

    fn logical_dns(&mut self, at: At<'_>) {
        let localities = at.get("load_assignment").map(|it| it.list("endpoints")).unwrap_or_default();
        let endpoints: Vec<_> =
            localities.iter().flat_map(|locality| locality.list("lb_endpoints")).collect();
        let ([_], [endpoint]) = (localities.as_slice(), endpoints.as_slice()) else {
            return self.fault("B173", at, "not one endpoint");
        };
        let socket = endpoint.get("endpoint").and_then(|it| it.get("address")?.get("socket_address"));
        let Some(socket) = socket else { return self.fault("B173", at, "no socket address") };
        if socket.text("address").is_empty() || socket.number("port_value").unwrap_or_default() == 0 {
            self.fault("B173", at, "host or port");
        }
        self.only("B174", socket, &["address", "port_value"]);
    }
}
