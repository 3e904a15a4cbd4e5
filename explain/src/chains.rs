//! The filter chain of a connection: by a tree of matchers if the listener has one (XF2), else by the nine steps.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::core::v3::address::Address as AddressKind;
use envoy_types::pb::envoy::config::listener::v3::listener_filter::ConfigType;
use envoy_types::pb::envoy::config::listener::v3::{FilterChain, Listener};
use prost::Message as _;

use crate::client::{Client, Language};
use crate::listener::{Connected, asked_inputs, by_steps};
use crate::request::Connection;
use crate::semantics::Semantics;
use crate::tree::{Facts, Found, Input, Known, Looked, Node, Tree, What, message_of, read, walk};

/// The filter chains of a listener, ready for connections.
#[derive(Debug)]
pub(crate) struct Chains<'l> {
    listener: &'l Listener,
    tree: Option<ChainTree>,
    /// What listener filters learn of TLS.
    inspection: Inspection,
}

/// The tree of a listener, and the names of chains that are its actions.
#[derive(Debug)]
struct ChainTree {
    tree: Tree,
    names: Vec<String>,
}

/// The chains that may take a connection.
#[derive(Debug)]
pub(crate) struct ChainsFound<'l> {
    /// One, unless it depends on something that is not known.
    pub(crate) ways: Vec<ChainWay<'l>>,
    /// Which steps left some chains out.
    pub(crate) steps: Vec<&'static str>,
    /// The branches of a tree that were looked at, and how many more.
    pub(crate) looked: Vec<Looked>,
    pub(crate) n_left_out: usize,
}

/// A chain that may take a connection.
#[derive(Clone, Debug)]
pub(crate) struct ChainWay<'l> {
    /// The chain; its index, or `None` for the default one. `None` if the connection is closed.
    pub(crate) chain: Option<(&'l FilterChain, Option<usize>)>,
    /// The name that the tree says, if no chain has it.
    pub(crate) missing: Option<String>,
    /// What is assumed of things that are not known, in words.
    pub(crate) assumed: Vec<String>,
    /// Why it is not known what the tree chooses.
    pub(crate) unknown: Option<String>,
}

/// What listener filters learn before a chain is chosen. Without one, an Envoy with a tree knows no server name, and takes TLS for
/// plaintext.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inspection {
    Nothing,
    Tls,
    Quic,
    Unknown,
}

impl<'l> Chains<'l> {
    pub(crate) fn of(listener: &'l Listener) -> Self {
        // All Envoys read texts alike.
        let semantics = Semantics::of(Client::newest(Language::Envoy));
        let tree = listener.filter_chain_matcher.as_ref().map(|matcher| {
            let mut names = Vec::new();
            let mut tree =
                read(matcher, "filter_chain_matcher", semantics, &mut |any, _| match message_of(any) {
                    "google.protobuf.StringValue" => {
                        names.push(String::decode(&*any.value).unwrap_or_default());
                        What::Action(names.len() - 1)
                    }
                    name => What::Unknown(format!("the action {name} is not modelled")),
                });
            if let Some(path) = &tree.keeps {
                tree.root = Node::Unknown(format!("{path} has keep_matching, and an Envoy crashes on it"));
            }
            ChainTree { tree, names }
        });
        Self { listener, tree, inspection: inspection(listener) }
    }

    /// The tree of matchers.
    pub(crate) fn tree(&self) -> Option<&Tree> {
        self.tree.as_ref().map(|tree| &tree.tree)
    }

    /// The chains that may take a connection. The filter state is what listener filters leave.
    pub(crate) fn find(
        &self,
        connected: &Connected,
        filter_state: &BTreeMap<String, String>,
    ) -> ChainsFound<'l> {
        let listener = self.listener;
        let Some(ChainTree { tree, names }) = &self.tree else {
            let found = by_steps(listener, connected);
            let way = ChainWay { chain: found.chain, missing: None, assumed: Vec::new(), unknown: None };
            return ChainsFound { ways: vec![way], steps: found.steps, looked: Vec::new(), n_left_out: 0 };
        };
        let offered = Offered { listener, connected, filter_state, inspection: self.inspection };
        let walked = walk(tree, &offered);
        let way = |way: crate::tree::Way| {
            let mut own = ChainWay { chain: None, missing: None, assumed: way.assumed, unknown: None };
            match way.found {
                Found::Action(at) => {
                    let name = names.get(at).map(String::as_str).unwrap_or_default();
                    let mut chains = listener.filter_chains.iter().enumerate();
                    own.chain =
                        chains.find(|(_, chain)| chain.name == name).map(|(at, chain)| (chain, Some(at)));
                    own.missing = Some(name.to_owned()).filter(|_| own.chain.is_none());
                }
                Found::Nothing => {
                    own.chain = listener.default_filter_chain.as_ref().map(|chain| (chain, None));
                }
                Found::Unknown(why) => own.unknown = Some(why),
            }
            own
        };
        let mut ways: Vec<ChainWay<'l>> = walked.ways.into_iter().map(way).collect();
        if walked.has_more || ways.is_empty() {
            let unknown = Some("more ways than are followed".to_owned());
            ways.push(ChainWay { chain: None, missing: None, assumed: Vec::new(), unknown });
        }
        ChainsFound { ways, steps: Vec::new(), looked: walked.looked, n_left_out: walked.n_left_out }
    }

    /// The inputs that would make a difference and are not given.
    pub(crate) fn depends_on(&self, connection: &Connection) -> Vec<&'static str> {
        let Some(tree) = self.tree() else { return asked_inputs(self.listener, connection) };
        let inputs: [(&str, bool, &[Input]); 4] = [
            (
                "--from",
                connection.from.is_none(),
                &[Input::SourceIp, Input::DirectSourceIp, Input::SourceType],
            ),
            ("the port of --from", connection.from_port.is_none(), &[Input::SourcePort]),
            ("--to", connection.to.is_none(), &[Input::DestinationIp]),
            ("--alpn", connection.alpn.is_empty(), &[Input::ApplicationProtocols]),
        ];
        let asks = |wanted: &[Input]| wanted.iter().any(|input| tree.inputs.contains(input));
        let missing = inputs.into_iter().filter(|(_, is_missing, wanted)| *is_missing && asks(wanted));
        missing.map(|(name, ..)| name).collect()
    }
}

impl<'l> ChainsFound<'l> {
    /// The way that the connection takes for certain.
    pub(crate) fn only(&self) -> Option<&ChainWay<'l>> {
        let first = self.ways.first()?;
        let index = |way: &ChainWay<'l>| way.chain.map(|(_, index)| index);
        let is_same = |way: &ChainWay<'l>| way.unknown.is_none() && index(way) == index(first);
        self.ways.iter().all(is_same).then_some(first)
    }
}

/// A connection as a tree sees it.
struct Offered<'o> {
    listener: &'o Listener,
    connected: &'o Connected,
    filter_state: &'o BTreeMap<String, String>,
    inspection: Inspection,
}

impl Facts for Offered<'_> {
    fn value(&self, input: &Input) -> Known {
        let Self { listener, connected, filter_state, inspection } = self;
        let known_of_tls = |known: Option<String>| match inspection {
            Inspection::Tls | Inspection::Quic => known.map_or(Known::Absent, Known::Text),
            Inspection::Nothing => Known::Absent,
            Inspection::Unknown => Known::Unknown,
        };
        match input {
            Input::DestinationIp => Known::Text(connected.to.to_string()),
            Input::DestinationPort => Known::Text(connected.port.to_string()),
            // No listener filter that changes the source is modelled.
            Input::SourceIp | Input::DirectSourceIp => Known::Text(connected.from.to_string()),
            Input::SourcePort => Known::Text(connected.from_port.to_string()),
            Input::SourceType if connected.is_local() => Known::Text("local".to_owned()),
            Input::SourceType => Known::Absent,
            Input::ServerName => known_of_tls(Some(connected.sni.clone()).filter(|name| !name.is_empty())),
            Input::TransportProtocol => match inspection {
                Inspection::Quic => Known::Text("quic".to_owned()),
                Inspection::Tls if connected.is_tls => Known::Text("tls".to_owned()),
                Inspection::Tls | Inspection::Nothing => Known::Text("raw_buffer".to_owned()),
                Inspection::Unknown => Known::Unknown,
            },
            Input::ApplicationProtocols => {
                let all: Vec<String> = connected.alpn.iter().map(|one| format!("'{one}'")).collect();
                known_of_tls(Some(all.join(",")).filter(|all| !all.is_empty()))
            }
            Input::NetworkNamespace if has_namespace(listener) => Known::Unknown,
            Input::NetworkNamespace => Known::Absent,
            Input::FilterState(key) => filter_state.get(key).cloned().map_or(Known::Unknown, Known::Text),
            Input::Header(_) | Input::Environment(_) | Input::Other(_) => Known::Unknown,
        }
    }
}

fn inspection(listener: &Listener) -> Inspection {
    if listener.udp_listener_config.as_ref().is_some_and(|config| config.quic_options.is_some()) {
        return Inspection::Quic;
    }
    let mut inspection = Inspection::Nothing;
    for filter in &listener.listener_filters {
        let name = match &filter.config_type {
            Some(ConfigType::TypedConfig(any)) => message_of(any),
            Some(ConfigType::ConfigDiscovery(_)) => return Inspection::Unknown,
            None => continue,
        };
        match name {
            "envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector"
                if filter.filter_disabled.is_none() =>
            {
                inspection = Inspection::Tls;
            }
            // The other one reads the protocol of requests in plaintext.
            "envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector"
            | "envoy.extensions.filters.listener.http_inspector.v3.HttpInspector" => {
                return Inspection::Unknown;
            }
            _ => {}
        }
    }
    inspection
}

fn has_namespace(listener: &Listener) -> bool {
    let additional = listener.additional_addresses.iter().filter_map(|more| more.address.as_ref());
    listener.address.iter().chain(additional).any(|address| match &address.address {
        Some(AddressKind::SocketAddress(socket)) => !socket.network_namespace_filepath.is_empty(),
        Some(_) | None => false,
    })
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::core::v3::address::Address as AddressKind;
    use envoy_types::pb::envoy::config::core::v3::socket_address::PortSpecifier;
    use envoy_types::pb::envoy::config::core::v3::{Address, SocketAddress};
    use envoy_types::pb::envoy::config::listener::v3::{FilterChainMatch, ListenerFilter};
    use envoy_types::pb::google::protobuf::{Any, UInt32Value};
    use envoy_types::pb::xds::r#type::matcher::v3::Matcher;
    use envoy_types::pb::xds::r#type::matcher::v3::string_matcher::MatchPattern;

    use super::*;
    use crate::space::connection::ways;
    use crate::tree::make::{
        chain, exact_map, filter_state, is, list, names, network, not, or_else, prefix_map, ranges, sub,
    };

    /// A listener with the chains `a` and `b`, neither of which a connection would reach by its conditions, and a default one.
    fn listener(matcher: Matcher, inspects: bool) -> Listener {
        let nobody = || {
            Some(FilterChainMatch { destination_port: Some(UInt32Value { value: 1 }), ..Default::default() })
        };
        let chain = |name: &str| FilterChain {
            name: name.to_owned(),
            filter_chain_match: nobody(),
            ..Default::default()
        };
        let type_url = "type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector";
        let any = Any { type_url: type_url.to_owned(), value: Vec::new() };
        let inspector =
            ListenerFilter { config_type: Some(ConfigType::TypedConfig(any)), ..Default::default() };
        let socket = SocketAddress {
            address: "10.0.0.1".to_owned(),
            port_specifier: Some(PortSpecifier::PortValue(443)),
            ..Default::default()
        };
        Listener {
            address: Some(Address { address: Some(AddressKind::SocketAddress(socket)) }),
            filter_chains: vec![chain("a"), chain("b")],
            default_filter_chain: Some(FilterChain { name: "default".to_owned(), ..Default::default() }),
            filter_chain_matcher: Some(matcher),
            listener_filters: if inspects { vec![inspector] } else { Vec::new() },
            ..Default::default()
        }
    }

    fn connected() -> Connected {
        Connected { sni: "a.test".to_owned(), ..crate::listener::tests::connected() }
    }

    /// The name of the chain; empty if the connection is closed.
    fn found(listener: &Listener, connected: &Connected) -> String {
        let found = Chains::of(listener).find(connected, &BTreeMap::new());
        let way = found.only().unwrap_or_else(|| panic!("{found:?}"));
        way.chain.map(|(chain, _)| chain.name.clone()).unwrap_or_default()
    }

    fn by(input: &str, key: &str) -> Matcher {
        exact_map(network(input), vec![(key, chain("a"))])
    }

    // What these trees do was read off an Envoy 1.40.

    #[test]
    fn f2_the_matcher_alone_names_the_chain_and_its_conditions_do_not_count() {
        let tree = || {
            let keys = vec![
                ("a.test", chain("a")),
                ("b.test", chain("b")),
                ("c.test", chain("c")),
                ("d.test", chain("default")),
            ];
            exact_map(network("ServerNameInput"), keys)
        };
        let of =
            |sni: &str| found(&listener(tree(), true), &Connected { sni: sni.to_owned(), ..connected() });
        // A name that no chain has closes the connection, and that of the default chain is none.
        assert_eq!(
            ["a.test", "b.test", "c.test", "d.test", "x", ""].map(of),
            ["a", "b", "", "", "default", "default"]
        );
        let closed = Listener { default_filter_chain: None, ..listener(tree(), true) };
        assert_eq!(found(&closed, &Connected { sni: "x".to_owned(), ..connected() }), "");
        assert_eq!(found(&listener(Matcher::default(), true), &connected()), "default");
        assert_eq!(found(&listener(or_else(Matcher::default(), chain("b")), true), &connected()), "b");
    }

    #[test]
    fn f2_inputs_of_connections() {
        for (input, key) in [
            ("DestinationIPInput", "10.0.0.1"),
            ("DestinationPortInput", "443"),
            ("SourceIPInput", "192.0.2.1"),
            ("DirectSourceIPInput", "192.0.2.1"),
            ("SourcePortInput", "5000"),
            ("ServerNameInput", "a.test"),
            ("TransportProtocolInput", "tls"),
            ("ApplicationProtocolInput", "'h2','http/1.1'"),
        ] {
            assert_eq!(found(&listener(by(input, key), true), &connected()), "a", "{input}");
            assert_eq!(found(&listener(by(input, "other"), true), &connected()), "default", "{input}");
        }
        let local = listener(by("SourceTypeInput", "local"), false);
        for (from, expected) in
            [("192.0.2.1", "default"), ("127.0.0.1", "a"), ("10.0.0.1", "a"), ("127.0.0.2", "default")]
        {
            assert_eq!(
                found(&local, &Connected { from: from.parse().unwrap(), ..connected() }),
                expected,
                "{from}"
            );
        }
        assert_eq!(found(&listener(by("NetworkNamespaceInput", ""), true), &connected()), "default");
    }

    #[test]
    fn f2_without_an_inspector_nothing_is_known_of_tls() {
        let of = |input, key| found(&listener(by(input, key), false), &connected());
        assert_eq!(of("ServerNameInput", "a.test"), "default");
        assert_eq!(of("ApplicationProtocolInput", "'h2','http/1.1'"), "default");
        assert_eq!(of("TransportProtocolInput", "raw_buffer"), "a");
        let plain = Connected { is_tls: false, sni: String::new(), alpn: Vec::new(), ..connected() };
        assert_eq!(found(&listener(by("TransportProtocolInput", "raw_buffer"), true), &plain), "a");
    }

    #[test]
    fn f2_ranges_and_names() {
        let all = vec![("192.0.0.0", 8, false, chain("a")), ("192.0.2.0", 24, false, chain("b"))];
        assert_eq!(found(&listener(ranges(network("SourceIPInput"), all), false), &connected()), "b");
        let all = vec![("*.test", chain("a")), ("*", chain("b"))];
        let tree = listener(names(network("ServerNameInput"), all), true);
        let of = |sni: &str| found(&tree, &Connected { sni: sni.to_owned(), ..connected() });
        assert_eq!(["x.a.test", "zz", ""].map(of), ["a", "b", "default"]);
        let h2 = is(network("ApplicationProtocolInput"), MatchPattern::Contains("'h2'".to_owned()));
        assert_eq!(found(&listener(list(vec![(h2, chain("a"))]), true), &connected()), "a");
    }

    #[test]
    fn f2_filter_state_that_is_not_said_forks_the_answer() {
        let tree = listener(exact_map(filter_state("k"), vec![("1", chain("a"))]), false);
        let chains = Chains::of(&tree);
        let found = chains.find(&connected(), &BTreeMap::new());
        assert!(found.only().is_none());
        let names: Vec<&str> = found.ways.iter().filter_map(|way| Some(&*way.chain?.0.name)).collect();
        assert_eq!(names, ["a", "default"]);
        let said = chains.find(&connected(), &[("k".to_owned(), "1".to_owned())].into());
        assert_eq!(said.only().unwrap().chain.unwrap().0.name, "a");
        assert!(ways([&tree, &tree]).1.is_some());
    }

    #[test]
    fn f2_a_match_that_is_kept_crashes_an_envoy_and_is_not_modelled() {
        let mut kept = chain("a");
        kept.keep_matching = true;
        let tree = listener(or_else(Matcher::default(), kept), false);
        let found = Chains::of(&tree).find(&connected(), &BTreeMap::new());
        assert!(found.ways[0].unknown.as_ref().unwrap().contains("keep_matching"));
    }

    #[test]
    fn f2_connections_that_a_matcher_tells_apart_are_found() {
        let reached = |matcher: Matcher| -> Option<Vec<Option<Option<usize>>>> {
            let listener = listener(matcher, true);
            let (ways, undecided) = ways([&listener, &listener]);
            undecided.is_none().then(|| ways.into_keys().map(|[chain, _]| chain).collect())
        };
        let (a, b, default) = (Some(Some(0)), Some(Some(1)), Some(None));
        let nested = |then| sub(exact_map(network("SourceIPInput"), vec![("192.0.2.9", then)]));
        let tree = exact_map(
            network("ServerNameInput"),
            vec![("a.test", nested(chain("a"))), ("b.test", chain("b"))],
        );
        assert_eq!(reached(tree), Some(vec![default, a, b]));
        let tree = prefix_map(network("ServerNameInput"), vec![("a", chain("a")), ("ab", chain("b"))]);
        assert_eq!(reached(tree), Some(vec![default, a, b]));
        let all = vec![
            ("10.0.0.0", 8, false, chain("a")),
            ("10.0.0.0", 9, false, chain("b")),
            ("10.128.0.0", 9, false, chain("b")),
        ];
        assert_eq!(reached(ranges(network("SourceIPInput"), all)), Some(vec![default, b]));
        let h2 = || is(network("ApplicationProtocolInput"), MatchPattern::Contains("'h2'".to_owned()));
        let h1 = is(network("ApplicationProtocolInput"), MatchPattern::Contains("'h1'".to_owned()));
        assert_eq!(
            reached(list(vec![(h2(), chain("a")), (h1, chain("b")), (not(h2()), chain("c"))])),
            Some(vec![None, a, b])
        );
        let regex = is(network("ServerNameInput"), MatchPattern::Suffix("t".to_owned()));
        assert_eq!(reached(list(vec![(regex, chain("a"))])), None);
    }
}
