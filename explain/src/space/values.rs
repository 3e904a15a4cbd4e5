//! The values of everything but the path: headers, parameters, cookies, certificates, and what is not known.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::ControlFlow;

use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::PathWithEscapedSlashesAction;

use crate::before::arrive;
use crate::header::{HeaderCondition, Seen};
use crate::path;
use crate::request::Request;
use crate::route::{Asked, Condition, Route};
use crate::semantics::{Difference, Semantics};
use crate::shape::Shape;
use crate::space::automaton::{Automaton, Search};
use crate::space::universe::{PathRules, Universe};
use crate::table::RouteTable;
use crate::truth::Truth;

/// How requests come to the routes, before and after.
#[derive(Clone, Debug)]
pub(crate) struct Arrival<'m> {
    /// A request of which everything else is added.
    pub(crate) base: Request,
    /// The connection managers of a proxy.
    pub(crate) managers: [Option<&'m HttpConnectionManager>; 2],
    pub(crate) semantics: Semantics,
}

/// Something that conditions look at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    /// A header, by its name in lower case; `:method`, too.
    Header(String),
    /// A parameter of the query.
    Query(String),
    /// A cookie.
    Cookie(String),
    /// The client's certificate.
    Certificate,
    /// Something that no request says, in words.
    Unknown(String),
    /// A condition whose value depends on another dimension, in words.
    Linked(String),
}

/// A value: none, one or several texts.
pub(crate) type Value = Vec<String>;

/// Everything that conditions look at, and the values that they tell apart.
#[derive(Debug, Default)]
pub(crate) struct Dimensions {
    pub(crate) all: Vec<Dimension>,
    /// By side and route: for each dimension, the conditions.
    of_route: [HashMap<u32, Vec<(usize, usize)>>; 2],
    /// What was not looked at completely.
    pub(crate) incomplete: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Dimension {
    pub(crate) key: Key,
    pub(crate) values: Vec<Value>,
    /// For each condition, if it holds for each value.
    holds: Vec<Vec<bool>>,
}

/// A condition as it was met first.
struct Met<'m> {
    side: usize,
    route: &'m Route,
    condition: Condition<'m>,
}

impl Arrival<'_> {
    /// What happens to paths on their way to the routes, if both connection managers are the same.
    pub(crate) fn path_rules(&self, table: &RouteTable) -> PathRules {
        let Some(manager) = self.managers[0] else { return PathRules::default() };
        PathRules {
            normalizes: manager.normalize_path.as_ref().is_some_and(|flag| flag.value),
            merges_slashes: manager.merge_slashes,
            unescapes_slashes: !matches!(
                manager.path_with_escaped_slashes_action(),
                PathWithEscapedSlashesAction::ImplementationSpecificDefault
                    | PathWithEscapedSlashesAction::KeepUnchanged
            ),
            ignores_parameters: table.message.ignore_path_parameters_in_path_matching,
            has_escapes: false,
        }
    }

    /// The index of the virtual host that takes a host.
    pub(crate) fn taker(&self, table: &RouteTable, host: &str) -> Option<usize> {
        if table.hidden_by().is_some() {
            return None;
        }
        let request = Request { authority: host.to_owned(), ..self.base.clone() };
        let seen = Seen::of(&request, self.semantics);
        let ((at, _), _) = table.host(&Asked { request: &request, path: "/", seen: &seen })?;
        Some(at)
    }

    /// The request as the routes of one side see it.
    fn arrived(&self, side: usize, request: &Request) -> (Request, Seen) {
        let seen = Seen::of(request, self.semantics);
        match self.managers.get(side).copied().flatten() {
            Some(manager) => {
                let arrived = arrive(request, seen, manager, request.connection.port);
                (arrived.request, arrived.seen)
            }
            None => (request.clone(), seen),
        }
    }

    /// The request with a path and with values.
    pub(crate) fn request<'v>(
        &self,
        path: &str,
        values: impl Iterator<Item = (&'v Key, &'v Value)>,
    ) -> Request {
        let mut request = Request { path: path.to_owned(), ..self.base.clone() };
        let mut queries = Vec::new();
        let mut cookies = Vec::new();
        for (key, value) in values {
            match key {
                Key::Header(name) if name == ":method" => request.method = value.concat(),
                Key::Header(name) => {
                    request.headers.extend(value.iter().map(|text| (name.clone(), text.clone())));
                }
                Key::Query(name) => queries.extend(value.iter().map(|text| match &**text {
                    "" => name.clone(),
                    text => format!("{name}={text}"),
                })),
                Key::Cookie(name) => cookies.extend(value.iter().map(|text| format!("{name}={text}"))),
                Key::Certificate => request.connection.certificate = certificate(value),
                Key::Unknown(_) | Key::Linked(_) => {}
            }
        }
        if !queries.is_empty() {
            request.path = format!("{}?{}", request.path, queries.join("&"));
        }
        if !cookies.is_empty() {
            request.headers.push(("cookie".to_owned(), cookies.join("; ")));
        }
        request
    }
}

fn certificate(value: &Value) -> Option<(bool, bool)> {
    match &*value.concat() {
        "none" => Some((false, false)),
        "presented" => Some((true, false)),
        "validated" => Some((true, true)),
        _ => None,
    }
}

impl Dimensions {
    /// The dimensions that these routes look at.
    pub(crate) fn of<'m>(
        arrival: &Arrival<'_>,
        routes: impl Iterator<Item = (usize, u32, &'m Route)>,
        n_steps: &mut usize,
    ) -> Self {
        let mut found: BTreeMap<Key, (Vec<Met<'m>>, HashMap<String, usize>)> = BTreeMap::new();
        let mut of_route: [HashMap<u32, Vec<(Key, usize)>>; 2] = [HashMap::new(), HashMap::new()];
        let sides_differ = arrival.managers[0] != arrival.managers[1];
        for (side, index, route) in routes {
            let mut own = Vec::new();
            for (condition, words) in route.conditions().zip(words(route)) {
                let Some(key) = key(&condition, route, arrival.semantics, &words) else { continue };
                let (met, known) = found.entry(key.clone()).or_default();
                let words = if sides_differ { format!("{side} {words}") } else { words };
                let at = *known.entry(words).or_insert_with(|| {
                    met.push(Met { side, route, condition });
                    met.len() - 1
                });
                own.push((key, at));
            }
            if let Some(of_side) = of_route.get_mut(side) {
                of_side.insert(index, own);
            }
        }
        let mut dimensions = Self::default();
        let mut places = HashMap::new();
        for (key, (met, _)) in found {
            places.insert(key.clone(), dimensions.all.len());
            let (values, is_complete) = values(&key, &met, arrival, n_steps);
            if !is_complete {
                dimensions.incomplete.push(key.say());
            }
            dimensions.all.push(Dimension::of(key, values, &met, arrival));
        }
        dimensions.of_route = of_route.map(|of_side| {
            let placed = |all: Vec<(Key, usize)>| {
                all.into_iter().filter_map(|(key, at)| Some((*places.get(&key)?, at))).collect()
            };
            of_side.into_iter().map(|(route, all)| (route, placed(all))).collect()
        });
        dimensions
    }

    /// The dimensions that a route looks at, as bits.
    pub(crate) fn mask(&self, side: usize, route: u32) -> u128 {
        self.conditions(side, route).iter().fold(0, |mask, (dimension, _)| mask | 1 << dimension)
    }

    /// Returns `true` if all conditions of the route on the dimension hold for the value.
    pub(crate) fn holds(&self, side: usize, route: u32, dimension: usize, value: usize) -> bool {
        let own = self.conditions(side, route).iter().filter(|(own, _)| *own == dimension);
        let Some(of) = self.all.get(dimension) else { return false };
        let mut held = own.map(|(_, at)| of.holds.get(*at).and_then(|values| values.get(value)).copied());
        held.all(|holds| holds == Some(true))
    }

    fn conditions(&self, side: usize, route: u32) -> &[(usize, usize)] {
        self.of_route.get(side).and_then(|of_side| of_side.get(&route)).map(Vec::as_slice).unwrap_or_default()
    }
}

impl Dimension {
    /// Of values for which the same conditions hold, the first is kept.
    fn of(key: Key, values: Vec<Value>, met: &[Met<'_>], arrival: &Arrival<'_>) -> Self {
        let mut dimension = Self { key, values: Vec::new(), holds: vec![Vec::new(); met.len()] };
        let mut seen: HashSet<Vec<bool>> = HashSet::new();
        for value in values {
            let holds = dimension.key.holds(&value, met, arrival);
            if !seen.insert(holds.clone()) {
                continue;
            }
            for (of_condition, holds) in dimension.holds.iter_mut().zip(holds) {
                of_condition.push(holds);
            }
            dimension.values.push(value);
        }
        dimension
    }
}

impl Key {
    /// In words.
    pub(crate) fn say(&self) -> String {
        match self {
            Self::Header(name) => format!("header `{name}`"),
            Self::Query(name) => format!("parameter `{name}`"),
            Self::Cookie(name) => format!("cookie `{name}`"),
            Self::Certificate => "client certificate".to_owned(),
            Self::Unknown(words) | Self::Linked(words) => {
                words.split('\n').next().unwrap_or_default().to_owned()
            }
        }
    }

    /// Asks the conditions themselves.
    fn holds(&self, value: &Value, met: &[Met<'_>], arrival: &Arrival<'_>) -> Vec<bool> {
        if matches!(self, Self::Unknown(_) | Self::Linked(_)) {
            return vec![!value.is_empty(); met.len()];
        }
        let request = arrival.request("/", [(self, value)].into_iter());
        let arrived = [arrival.arrived(0, &request), arrival.arrived(1, &request)];
        let holds = |met: &Met<'_>| {
            let Some((request, seen)) = arrived.get(met.side) else { return false };
            let path = path::compared(&request.path, false);
            met.route.truth(&met.condition, &Asked { request, path: &path, seen }) == Truth::Yes
        };
        met.iter().map(holds).collect()
    }
}

/// Each condition of a route in the words of its message, in the order of [`Route::conditions`]. Equal words are equal conditions.
fn words(route: &Route) -> impl Iterator<Item = String> {
    let matches = route.message.r#match.clone().unwrap_or_default();
    let unknown = format!("{:?} {:?}", matches.dynamic_metadata, matches.filter_state);
    let mut n_headers = 0;
    let mut n_queries = 0;
    let mut n_cookies = 0;
    let mut n_unknown = 0;
    route.conditions().map(move |condition| {
        let next = |n: &mut usize| {
            *n += 1;
            *n - 1
        };
        match condition {
            Condition::Path => format!("{:?} {:?}", matches.path_specifier, matches.case_sensitive),
            Condition::Header(_) => format!("{:?}", matches.headers.get(next(&mut n_headers))),
            Condition::Query(_) => format!("{:?}", matches.query_parameters.get(next(&mut n_queries))),
            Condition::Cookie(_) => format!("{:?}", matches.cookies.get(next(&mut n_cookies))),
            Condition::Grpc => "grpc".to_owned(),
            Condition::Certificate(..) => format!("{:?}", matches.tls_context),
            Condition::Branch(branch) => format!("branch {}", branch.wanted()),
            Condition::Unknown(_) => format!("{} {unknown}", next(&mut n_unknown)),
            Condition::LeftOut(_) | Condition::Never => String::new(),
        }
    })
}

/// The dimension of a condition; `None` if the path decides. `words` tell unknown conditions apart.
fn key(condition: &Condition<'_>, route: &Route, semantics: Semantics, words: &str) -> Option<Key> {
    Some(match condition {
        Condition::Path if route.path.is_connect() => Key::Header(":method".to_owned()),
        Condition::Path if route.path.matches("/", "GET") == Truth::Unknown => {
            Key::Unknown(format!("path {}\n{words}", route.wanted_path()))
        }
        Condition::Path | Condition::LeftOut(_) | Condition::Never => return None,
        Condition::Header(header) => {
            let say = || format!("header `{}` {}\n{words}", header.name(), header.wanted());
            of_header(header.key(), header.matches_value(""), semantics, &say)
        }
        Condition::Branch(branch) => {
            let say = || format!("header `{}` {}\n{words}", branch.name, branch.wanted());
            of_header(&branch.name, branch.text.matches(""), semantics, &say)
        }
        Condition::Query(query) if query.text().is_some_and(|text| text.matches("") == Truth::Unknown) => {
            Key::Unknown(format!("parameter `{}` {}\n{words}", query.name, query.wanted()))
        }
        Condition::Query(query) => Key::Query(query.name.clone()),
        Condition::Cookie(cookie)
            if cookie.text.as_ref().is_some_and(|text| text.matches("") == Truth::Unknown) =>
        {
            Key::Unknown(format!("cookie `{}`\n{words}", cookie.name))
        }
        Condition::Cookie(cookie) => Key::Cookie(cookie.name.clone()),
        Condition::Grpc => Key::Header("content-type".to_owned()),
        Condition::Certificate(..) => Key::Certificate,
        Condition::Unknown(name) => Key::Unknown(format!("{name}\n{words}")),
    })
}

/// The dimension of a condition on a header, which says this of an empty value.
fn of_header(name: &str, of_empty: Truth, semantics: Semantics, say: &dyn Fn() -> String) -> Key {
    let name = if name == "host" { ":authority" } else { name };
    let is_proxy = semantics.has(Difference::SeesPseudoHeaders);
    if of_empty == Truth::Unknown {
        Key::Unknown(say())
    } else if is_proxy && LINKED.contains(&name)
        || name == ":path" && semantics.has(Difference::SeesPathHeader)
    {
        Key::Linked(say())
    } else {
        Key::Header(name.to_owned())
    }
}

/// Headers whose value depends on something else of the request.
const LINKED: &[&str] = &[":authority", ":path", ":scheme", "x-forwarded-proto", "cookie"];

/// The values that can be told apart, the plainest first, and whether these are all.
fn values(key: &Key, met: &[Met<'_>], arrival: &Arrival<'_>, n_steps: &mut usize) -> (Vec<Value>, bool) {
    let is_ascii = !arrival.semantics.has(Difference::SeesPseudoHeaders);
    match key {
        Key::Unknown(_) => (vec![Vec::new(), vec!["true".to_owned()]], true),
        Key::Linked(_) => (vec![Vec::new(), vec!["true".to_owned()]], false),
        Key::Certificate if arrival.base.connection.is_tls(&arrival.base.scheme) => {
            (["none", "presented", "validated"].map(|one| vec![one.to_owned()]).to_vec(), true)
        }
        Key::Certificate => (vec![Vec::new()], true),
        Key::Header(name) if name == ":method" => {
            let plain = ["GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS"];
            let (texts, is_complete) = texts(met, Universe::Method, n_steps);
            let all = plain.iter().map(|one| (*one).to_owned()).chain(texts);
            (all.map(|text| vec![text]).collect(), is_complete)
        }
        Key::Header(name) => {
            let (mut texts, mut is_complete) = texts(met, Universe::Value { is_ascii }, n_steps);
            let numbers = numbers(met);
            if !numbers.is_empty() {
                let mut others = met.iter().filter_map(|met| text_shapes(&met.condition)).flatten();
                is_complete &= others.all(|shape| matches!(shape, Shape::Exact { .. }));
                texts.extend(numbers);
            }
            let mut all = vec![Vec::new()];
            all.extend(texts.iter().map(|text| vec![text.clone()]));
            let is_of_tree = |met: &Met<'_>| matches!(met.condition, Condition::Branch(_));
            let n_of_tree = met.iter().filter(|met| is_of_tree(met)).count();
            let n_of_routes = met.len() - n_of_tree;
            let is_singly = name != "content-type" && arrival.semantics.has(Difference::ValuesMatchSingly);
            if is_singly && n_of_routes > 1 {
                is_complete &= add_several(met, &texts, &mut all);
            }
            // Trees join values, which routes compare one by one.
            is_complete &= !is_singly || n_of_tree == 0 || n_of_routes == 0;
            (all, is_complete)
        }
        Key::Query(name) => {
            let is_possible = !name.contains(['#', ' ']);
            let (texts, is_complete) =
                if is_possible { texts(met, Universe::Query, n_steps) } else { (Vec::new(), true) };
            let all = texts.into_iter().map(|text| vec![text]);
            ([Vec::new()].into_iter().chain(all).collect(), is_complete)
        }
        Key::Cookie(_) => {
            let (texts, is_complete) = texts(met, Universe::Cookie, n_steps);
            let all = texts.into_iter().map(|text| vec![text]);
            ([Vec::new()].into_iter().chain(all).collect(), is_complete)
        }
    }
}

fn text_shapes<'c>(condition: &Condition<'c>) -> Option<Vec<Shape<'c>>> {
    match condition {
        Condition::Header(header) => header.text()?.shapes(),
        Condition::Branch(branch) => branch.text.shapes(),
        Condition::Query(query) => query.text()?.shapes(),
        Condition::Cookie(cookie) => cookie.text.as_ref()?.shapes(),
        Condition::Grpc => Some(vec![
            Shape::Exact { text: "application/grpc".to_owned(), folds: false },
            Shape::Prefix { text: "application/grpc+".to_owned(), folds: false },
        ]),
        Condition::Path => {
            let exact = |text: &str| Shape::Exact { text: text.to_owned(), folds: false };
            Some(vec![exact("CONNECT"), exact("CONNECT-UDP")])
        }
        Condition::LeftOut(_) | Condition::Certificate(..) | Condition::Unknown(_) | Condition::Never => None,
    }
}

/// A text for each combination of conditions.
fn texts(met: &[Met<'_>], universe: Universe, n_steps: &mut usize) -> (Vec<String>, bool) {
    let mut shapes: Vec<Vec<Shape<'_>>> =
        met.iter().map(|met| text_shapes(&met.condition).unwrap_or_default()).collect();
    // Some conditions look at nothing but this.
    shapes.push(vec![Shape::Exact { text: String::new(), folds: false }]);
    let mut automaton = Automaton::of(&shapes, universe);
    let mut texts = Vec::new();
    let search = automaton.search(None, n_steps, |_, text| {
        texts.push(text.to_owned());
        if texts.len() < MAX_VALUES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    (texts, search == Search::Complete && automaton.unreadable.is_empty())
}

/// The limits of ranges, and the numbers beside them.
fn numbers(met: &[Met<'_>]) -> Vec<String> {
    let mut numbers: Vec<i64> = Vec::new();
    for met in met {
        if let Condition::Header(header) = &met.condition
            && let Some((start, end)) = header.range()
        {
            for limit in [start, end] {
                numbers.extend((-1..=3).map(|by| limit.saturating_add(by)));
            }
        }
    }
    numbers.sort_unstable();
    numbers.dedup();
    numbers.truncate(MAX_VALUES);
    numbers.iter().map(i64::to_string).collect()
}

/// Adds several values of one header, each of which fulfils other conditions (XR9). Returns `false` if there are more.
fn add_several(met: &[Met<'_>], texts: &[String], all: &mut Vec<Value>) -> bool {
    let headers: Vec<&HeaderCondition> = met
        .iter()
        .filter_map(|met| match met.condition {
            Condition::Header(header) => Some(header),
            Condition::LeftOut(_)
            | Condition::Path
            | Condition::Query(_)
            | Condition::Cookie(_)
            | Condition::Grpc
            | Condition::Certificate(..)
            | Condition::Branch(_)
            | Condition::Unknown(_)
            | Condition::Never => None,
        })
        .collect();
    let held = |text: &String| -> Vec<bool> {
        headers.iter().map(|header| header.matches_value(text) == Truth::Yes).collect()
    };
    let singles: Vec<(Vec<bool>, &String)> = texts.iter().map(|text| (held(text), text)).collect();
    let mut seen: HashSet<Vec<bool>> = singles.iter().map(|(held, _)| held.clone()).collect();
    let mut open: Vec<(Vec<bool>, Value)> =
        singles.iter().map(|(held, text)| (held.clone(), vec![(*text).clone()])).collect();
    let mut at = 0;
    while let Some((held, value)) = open.get(at).cloned() {
        at += 1;
        for (more, text) in &singles {
            let both: Vec<bool> = held.iter().zip(more).map(|(one, other)| *one || *other).collect();
            if !seen.insert(both.clone()) {
                continue;
            }
            let value: Value = value.iter().chain([*text]).cloned().collect();
            all.push(value.clone());
            open.push((both, value));
            if open.len() > MAX_VALUES {
                return false;
            }
        }
    }
    true
}

/// Values of one dimension.
const MAX_VALUES: usize = 512;
