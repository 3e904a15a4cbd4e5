//! The settings for route documents: Gateway API, SMI and the native form.

use std::net::IpAddr;
use std::num::NonZeroU16;

use clap::ArgAction;
use clap::builder::BoolishValueParser;

use crate::units::{UnitError, parse_size};

/// How route documents become resources. The same flags are those of `serve`, `validate` and `translate`.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Route documents")]
pub struct RouteArgs {
    /// Serve only Gateways of a GatewayClass with this controllerName [default: all Gateways]
    #[arg(long, env = "XDS_SERVER_CONTROLLER_NAME", value_name = "NAME")]
    pub controller_name: Option<String>,
    /// Port for routes if there is no Gateway; 0 for none
    #[arg(long, env = "XDS_SERVER_IMPLICIT_GATEWAY_PORT", value_name = "PORT", default_value = "8080")]
    pub implicit_gateway_port: u16,
    /// Address on which Envoys of the mesh listen for the ports of Services; `none` for no such listeners
    #[arg(long, env = "XDS_SERVER_MESH_ADDRESS", value_name = "IP|none", default_value = "127.0.0.1",
        value_parser = parse_mesh_address)]
    pub mesh_address: MeshAddress,
    /// Let a GRPCRoute and an HTTPRoute share a host of a listener, which the Gateway API forbids
    #[arg(long, env = "XDS_SERVER_MERGE_ROUTE_KINDS", default_value = "false", action = ArgAction::Set,
        num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL",
        hide_default_value = true, value_parser = BoolishValueParser::new())]
    pub merge_route_kinds: bool,
    /// Drop a rule for gRPC clients if they would ignore one of its filters
    #[arg(long, env = "XDS_SERVER_GRPC_STRICT", default_value = "false", action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_name = "BOOL", hide_default_value = true,
        value_parser = BoolishValueParser::new())]
    pub grpc_strict: bool,
    /// Match `pathRegex` of an HTTPRouteGroup against the whole path, not its beginning
    #[arg(long, env = "XDS_SERVER_SMI_WHOLE_PATH_REGEX", default_value = "false", action = ArgAction::Set,
        num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL",
        hide_default_value = true, value_parser = BoolishValueParser::new())]
    pub smi_whole_path_regex: bool,
    /// Ask clients to report their load to this server
    #[arg(long, env = "XDS_SERVER_LOAD_REPORTS", default_value = "true", action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_name = "BOOL",
        value_parser = BoolishValueParser::new())]
    pub load_reports: bool,
    /// Limit of routes generated for one node group: one for each match, host and listener
    #[arg(long, env = "XDS_SERVER_MAX_GENERATED_ROUTES", value_name = "N",
        default_value_t = xds_routes::GenerationLimits::default().max_routes)]
    pub max_generated_routes: usize,
    /// Limit of virtual hosts generated for one node group
    #[arg(long, env = "XDS_SERVER_MAX_GENERATED_HOSTS", value_name = "N",
        default_value_t = xds_routes::GenerationLimits::default().max_hosts)]
    pub max_generated_hosts: usize,
    /// Limit of bytes of route documents for one node group: the text of each, once for each of its virtual hosts
    #[arg(long, env = "XDS_SERVER_MAX_GENERATED_BYTES", value_name = "SIZE", default_value = "256MiB",
        value_parser = parse_size)]
    pub max_generated_bytes: usize,
    /// Limit of memory for what a validation, dry run or comparison generates, besides 20 times the text of its documents
    #[arg(long, env = "XDS_SERVER_MAX_TRIAL_MEMORY", value_name = "SIZE", default_value = "64MiB",
        value_parser = parse_size)]
    pub max_trial_memory: usize,
    /// How to report an unknown field of a Kubernetes kind; in the native form it is always an error
    #[arg(
        long,
        env = "XDS_SERVER_UNKNOWN_FIELDS",
        value_name = "LEVEL",
        value_enum,
        default_value = "error"
    )]
    pub unknown_fields: UnknownFields,
}

/// How unknown fields are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum UnknownFields {
    /// As an error: the object keeps its last good version.
    Error,
    /// As a warning: the object is served without the field.
    Warn,
}

/// Where Envoys of the mesh listen, if they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeshAddress(pub Option<IpAddr>);

fn parse_mesh_address(text: &str) -> Result<MeshAddress, UnitError> {
    if text == "none" {
        return Ok(MeshAddress(None));
    }
    let address = text.parse().map(|address| MeshAddress(Some(address)));
    address.map_err(|_| UnitError::new("not an IP address: write 127.0.0.1, ::1 or none".to_owned()))
}

impl From<&RouteArgs> for xds_routes::Options {
    fn from(args: &RouteArgs) -> Self {
        Self {
            controller_name: args.controller_name.clone().filter(|name| !name.is_empty()),
            implicit_port: NonZeroU16::new(args.implicit_gateway_port).map(NonZeroU16::get),
            mesh_address: args.mesh_address.0,
            merges_route_kinds: args.merge_route_kinds,
            is_grpc_strict: args.grpc_strict,
            matches_whole_paths: args.smi_whole_path_regex,
            reports_loads: args.load_reports,
            limits: xds_routes::GenerationLimits {
                max_routes: args.max_generated_routes,
                max_hosts: args.max_generated_hosts,
                max_bytes: args.max_generated_bytes,
                trial_bytes: args.max_trial_memory,
            },
            unknown_fields: match args.unknown_fields {
                UnknownFields::Error => xds_routes::UnknownFields::Refuse,
                UnknownFields::Warn => xds_routes::UnknownFields::Warn,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use xds_routes::{GenerationLimits, Options};

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        routes: RouteArgs,
    }

    fn options(line: &str) -> Result<Options, String> {
        let words = ["xds-server"].into_iter().chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok(Options::from(&line.routes))
    }

    #[test]
    fn the_defaults_are_those_of_the_translation() {
        assert_eq!(options("").unwrap(), Options::default());
    }

    #[test]
    fn every_option_has_its_flag() {
        let line = "--controller-name a/b --implicit-gateway-port 0 --mesh-address none --merge-route-kinds \
                    --grpc-strict --smi-whole-path-regex=true --load-reports=false --max-generated-routes 7 \
                    --max-generated-hosts 8 --max-generated-bytes 9KiB --max-trial-memory 10KiB \
                    --unknown-fields warn";
        let expected = Options {
            controller_name: Some("a/b".to_owned()),
            implicit_port: None,
            mesh_address: None,
            merges_route_kinds: true,
            is_grpc_strict: true,
            matches_whole_paths: true,
            reports_loads: false,
            limits: GenerationLimits {
                max_routes: 7,
                max_hosts: 8,
                max_bytes: 9 << 10,
                trial_bytes: 10 << 10,
            },
            unknown_fields: xds_routes::UnknownFields::Warn,
        };
        assert_eq!(options(line).unwrap(), expected);
        assert_eq!(options("--mesh-address ::1").unwrap().mesh_address, Some("::1".parse().unwrap()));
        for (line, wrong) in [
            ("--mesh-address localhost", "127.0.0.1, ::1 or none"),
            ("--implicit-gateway-port 65536", "65535"),
            ("--grpc-strict=perhaps", "perhaps"),
        ] {
            assert!(options(line).unwrap_err().contains(wrong), "{line}");
        }
    }
}
