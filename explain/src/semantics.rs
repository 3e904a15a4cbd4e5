//! The table of differences between clients. No other module asks for a language.

use crate::client::{Client, Language};

/// Something that some clients do and others do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Difference {
    CaseOfHostCounts,
    StarStandsForNothing,
    HostIsAuthority,
    DuplicateDomainIsRefused,
    NoHostWaits,
    StarInsideIsExact,
    StarInsideIsRefused,
    StarInsideHidesAll,
    PathIsMethod,
    OddPathIsLeftOut,
    CaseFoldsByDefault,
    RegexReadsBytes,
    RegexIsHalfAnchored,
    OnlyPlainPaths,
    SeesPseudoHeaders,
    SeesPathHeader,
    SeesContentType,
    SeesBinaryHeaders,
    SeesTimeoutHeader,
    CapitalsNeverMatch,
    ValuesMatchSingly,
    AbsentMatchesInverted,
    MissingCountsAsEmpty,
    PresentIgnoresValue,
    PresentNeedsValue,
    BareHeaderIsRefused,
    RangeTakesBlanks,
    RangeTakesPlus,
    BackwardRangeIsRefused,
    CaseFoldsInUnicode,
    FoldedRegexIsRefused,
    EmptyExactTakesAll,
    QueryIsMatched,
    QueryIsIgnored,
    OneDraw,
    FractionIncludesLimit,
    BareFractionAlways,
    GrpcIsMatched,
    ContextIsMatched,
    TreeIsUsed,
    ActsAsProxy,
    RedirectIsRefused,
    UnsetWeightIsRefused,
}

/// One row of [`TABLE`].
struct Row {
    difference: Difference,
    /// The rule of the table in `docs/explain.md`.
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers and tests"))]
    rule: &'static str,
    /// The clients, and since which version.
    clients: &'static [(Language, (u16, u16))],
    /// Where it is to be seen.
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers and tests"))]
    source: &'static str,
    /// The module and the beginning of the name of the test.
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers and tests"))]
    test: &'static str,
}

/// What a client does, as a set of differences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Semantics(u64);

impl Semantics {
    pub(crate) fn of(client: Client) -> Self {
        let rows = TABLE.iter().filter(|row| {
            let mut clients = row.clients.iter();
            clients.any(|(language, since)| *language == client.language && *since <= client.version)
        });
        Self(rows.fold(0, |bits, row| bits | 1 << row.difference as u64))
    }

    pub(crate) fn has(self, difference: Difference) -> bool {
        self.0 & (1 << difference as u64) != 0
    }
}

const ALWAYS: (u16, u16) = (0, 0);
const ENVOY: (Language, (u16, u16)) = (Language::Envoy, ALWAYS);
const CORE: (Language, (u16, u16)) = (Language::CCore, ALWAYS);
const GO: (Language, (u16, u16)) = (Language::Go, ALWAYS);
const JAVA: (Language, (u16, u16)) = (Language::Java, ALWAYS);
const JS: (Language, (u16, u16)) = (Language::Js, ALWAYS);

/// A client that a row does not name does not do it.
#[rustfmt::skip]
const TABLE: &[Row] = &[
    row(Difference::CaseOfHostCounts, "XV1", &[GO, JS], "grpc-go xdsresource/unmarshal_rds.go; grpc-js matcher", "host::v1"),
    row(Difference::StarStandsForNothing, "XV2", &[GO, JS], "grpc-go xdsresource/matcher.go", "host::v2"),
    row(Difference::HostIsAuthority, "XV3", &[ENVOY], "router/config_impl.cc", "host::v3"),
    row(Difference::DuplicateDomainIsRefused, "XV4", &[ENVOY], "router/config_impl.cc", "table::v4"),
    row(Difference::NoHostWaits, "XV4", &[JS], "grpc-js-xds xds-dependency-manager.ts", "explain::v4"),
    row(Difference::StarInsideIsExact, "XV5", &[ENVOY], "router/config_impl.cc", "host::v5"),
    row(Difference::StarInsideIsRefused, "XV5", &[CORE, JAVA, JS], "xds_routing.cc", "host::v5"),
    row(Difference::StarInsideHidesAll, "XV5", &[GO], "grpc-go xdsresource/matcher.go", "host::v5"),
    row(Difference::PathIsMethod, "XR1", &[CORE, GO, JAVA, JS], "A28", "path::r1"),
    row(Difference::OddPathIsLeftOut, "XR2", &[CORE, JAVA], "xds_route_config_parser.cc", "route::r2"),
    row(Difference::CaseFoldsByDefault, "XR19", &[JAVA], "grpc-java XdsRouteConfigureResource", "route::r19"),
    row(Difference::RegexReadsBytes, "XR3", &[ENVOY], "common/common/regex.cc", "regex::r3"),
    row(Difference::RegexIsHalfAnchored, "XR3", &[JS], "grpc-js-xds matcher.ts", "regex::r3"),
    row(Difference::OnlyPlainPaths, "XR4", &[CORE, GO, JAVA, JS], "xds_route_config_parser.cc", "route::r4"),
    row(Difference::SeesPseudoHeaders, "XR7", &[ENVOY], "http/header_utility.cc", "header::r7"),
    row(Difference::SeesPathHeader, "XR7", &[CORE, JAVA], "xds_routing.cc", "header::r7"),
    row(Difference::SeesContentType, "XR7", &[ENVOY, CORE, JAVA, JS], "A28; grpc-go xdsresource/matcher.go", "header::r7"),
    row(Difference::SeesBinaryHeaders, "XR7", &[ENVOY, GO], "A28; grpc-go xdsresource/matcher.go", "header::r7"),
    row(Difference::SeesTimeoutHeader, "XR7", &[ENVOY, CORE, JAVA], "xds_routing.cc", "header::r7"),
    row(Difference::CapitalsNeverMatch, "XR8", &[CORE, JAVA], "matchers.cc", "header::r8"),
    row(Difference::ValuesMatchSingly, "XR9", &[(Language::Envoy, (1, 39))], "changelog 1.39: match_headers_individually", "header::r9"),
    row(Difference::AbsentMatchesInverted, "XR10", &[JS], "grpc-js-xds matcher.ts", "header::r10"),
    row(Difference::MissingCountsAsEmpty, "XR10", &[ENVOY], "http/header_utility.cc", "header::r10"),
    row(Difference::PresentIgnoresValue, "XR11", &[JS], "grpc-js-xds matcher.ts", "header::r11"),
    row(Difference::PresentNeedsValue, "XR11", &[GO], "grpc-go xdsresource/matcher_header.go", "header::r11"),
    row(Difference::BareHeaderIsRefused, "XR11", &[CORE, JAVA], "xds_route_config_parser.cc", "route::r11"),
    row(Difference::RangeTakesBlanks, "XR12", &[ENVOY, CORE, JAVA], "absl::SimpleAtoi", "header::r12"),
    row(Difference::RangeTakesPlus, "XR12", &[ENVOY, CORE, GO, JAVA], "absl::SimpleAtoi; strconv.ParseInt", "header::r12"),
    row(Difference::BackwardRangeIsRefused, "XR12", &[CORE, JAVA], "matchers.cc", "route::r12"),
    row(Difference::CaseFoldsInUnicode, "XR13", &[GO, JS], "strings.ToLower; toLowerCase", "text::r13"),
    row(Difference::FoldedRegexIsRefused, "XR13", &[ENVOY, CORE, JAVA], "common/common/matchers.cc; matchers.cc", "route::r13"),
    row(Difference::EmptyExactTakesAll, "XR13", &[ENVOY], "http/header_utility.cc", "header::r13"),
    row(Difference::QueryIsMatched, "XR14", &[ENVOY], "router/config_utility.cc", "query::r14"),
    row(Difference::QueryIsIgnored, "XR14", &[JS], "grpc-js-xds route resource", "route::r14"),
    row(Difference::OneDraw, "XR15", &[ENVOY], "router/config_impl.cc", "draw::e5"),
    row(Difference::FractionIncludesLimit, "XR15", &[GO], "grpc-go xdsresource/matcher.go", "draw::r15"),
    row(Difference::BareFractionAlways, "XR15", &[ENVOY, CORE, JS], "xds_route_config_parser.cc", "route::r15"),
    row(Difference::GrpcIsMatched, "XR16", &[ENVOY], "grpc/common.cc", "header::r16"),
    row(Difference::ContextIsMatched, "XR17", &[ENVOY], "router/config_impl.cc", "route::r17"),
    row(Difference::TreeIsUsed, "XR18", &[ENVOY], "router/config_impl.cc", "table::r18"),
    row(Difference::ActsAsProxy, "XA1", &[ENVOY], "A28", "table::a1"),
    row(Difference::RedirectIsRefused, "XA3", &[JAVA, JS], "grpc-js-xds route resource", "route::a3"),
    row(Difference::UnsetWeightIsRefused, "XA1", &[CORE, JAVA], "xds_route_config_parser.cc", "route::a1"),
];

const fn row(
    difference: Difference,
    rule: &'static str,
    clients: &'static [(Language, (u16, u16))],
    source: &'static str,
    test: &'static str,
) -> Row {
    Row { difference, rule, clients, source, test }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_difference_has_one_row_with_a_source_and_a_test() {
        let mut seen = BTreeSet::new();
        for row in TABLE {
            assert!(seen.insert(row.difference), "{:?} is there twice", row.difference);
            assert!(!row.source.is_empty() && !row.clients.is_empty());
            let (module, name) = row.test.split_once("::").unwrap();
            let (_, text) = MODULES.iter().find(|(own, _)| *own == module).unwrap();
            assert!(text.contains(&format!("fn {name}_")), "{:?}: no test {name}_… in {module}", row.rule);
        }
        assert_eq!(seen.len(), Difference::UnsetWeightIsRefused as usize + 1);
    }

    const MODULES: [(&str, &str); 10] = [
        ("draw", include_str!("draw.rs")),
        ("explain", include_str!("explain.rs")),
        ("header", include_str!("header.rs")),
        ("host", include_str!("host.rs")),
        ("path", include_str!("path.rs")),
        ("query", include_str!("query.rs")),
        ("regex", include_str!("regex.rs")),
        ("route", include_str!("route.rs")),
        ("table", include_str!("table.rs")),
        ("text", include_str!("text.rs")),
    ];
}
