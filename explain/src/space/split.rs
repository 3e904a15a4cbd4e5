//! Two lists of routes, followed through the space of requests.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::rc::Rc;

use crate::request::Request;
use crate::route::{Condition, Route};
use crate::semantics::Difference;
use crate::shape::Shape;
use crate::space::automaton::{Automaton, Search};
use crate::space::universe::{PathRules, Universe};
use crate::space::values::{Arrival, Dimensions, Key, Value};
use crate::truth::Truth;

/// Two lists of routes over one set of conditions on paths.
#[derive(Debug)]
pub(crate) struct Lists<'m> {
    routes: [&'m [Route]; 2],
    automaton: Automaton,
    /// For each condition on the path, the routes of both sides that have it.
    having: Vec<[Vec<u32>; 2]>,
    /// By side and route: its condition on the path; `None` if the client does not use the route.
    path_of: [Vec<Option<u32>>; 2],
}

/// A part of the space where no condition is open, fractions apart: the routes that may be taken, in order.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) lists: Both,
    pub(crate) example: Request,
    /// What is assumed of things that no request says.
    pub(crate) when: Vec<String>,
    /// True if the example may be elsewhere, because its conditions depend on each other.
    pub(crate) is_linked: bool,
    /// How many parts are alike.
    pub(crate) n: u64,
}

/// Routes of both sides by their indices.
pub(crate) type Both = [Vec<u32>; 2];

/// What one walk may cost: steps of automata, and parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub(crate) n_steps: usize,
    pub(crate) n_parts: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { n_steps: MAX_STEPS, n_parts: MAX_PARTS }
    }
}

/// Steps of automata, for all virtual hosts together: about a second.
const MAX_STEPS: usize = 8_000_000;

/// Parts of a pair of virtual hosts.
const MAX_PARTS: usize = 20_000;

/// Routes in all lists that are kept at a time.
const MAX_LISTED: usize = 4_000_000;

/// Dimensions beside the path: the bits of a mask.
const MAX_DIMENSIONS: usize = 128;

/// The parts that a walk found, and why there may be more.
#[derive(Debug, Default)]
pub(crate) struct Walked {
    pub(crate) parts: Vec<Part>,
    pub(crate) undecided: Vec<String>,
}

/// If requests reach a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    Yes,
    /// None does; the routes whose paths it shares.
    No(Vec<u32>),
    Undecided,
}

/// Routes in the lists that are looked at for one route.
const MAX_LISTED_EACH: usize = 20_000;

impl<'m> Lists<'m> {
    pub(crate) fn of(routes: [&'m [Route]; 2], arrival: &Arrival<'_>, rules: PathRules) -> Self {
        let universe = match arrival.semantics.has(Difference::PathIsMethod) {
            true => Universe::GrpcPath,
            false => Universe::Path(rules),
        };
        Self::within(routes, universe)
    }

    /// The list of one side, for calls of gRPC clients, whoever the client is.
    pub(crate) fn of_calls(routes: &'m [Route]) -> Self {
        Self::within([routes, &[]], Universe::GrpcPath)
    }

    fn within(routes: [&'m [Route]; 2], universe: Universe) -> Self {
        let mut known: HashMap<String, u32> = HashMap::new();
        let mut shapes: Vec<Vec<Shape<'m>>> = Vec::new();
        let mut having: Vec<[Vec<u32>; 2]> = Vec::new();
        let mut path_of = [Vec::new(), Vec::new()];
        for (side, routes) in routes.into_iter().enumerate() {
            for (index, route) in (0..).zip(routes) {
                let is_used = !route
                    .conditions()
                    .any(|condition| matches!(condition, Condition::LeftOut(_) | Condition::Never));
                let condition = is_used.then(|| {
                    let matches = route.message.r#match.as_ref();
                    let words = matches
                        .map(|matches| format!("{:?} {:?}", matches.path_specifier, matches.case_sensitive));
                    let condition = *known.entry(words.unwrap_or_default()).or_insert_with(|| {
                        shapes.push(shapes_of(route));
                        having.push([Vec::new(), Vec::new()]);
                        u32::try_from(shapes.len() - 1).unwrap_or(u32::MAX)
                    });
                    if let Some(having) = having.get_mut(condition as usize) {
                        having[side].push(index);
                    }
                    condition
                });
                path_of[side].push(condition);
            }
        }
        let universe = match universe {
            Universe::Path(rules) => {
                let has_escapes = rules.has_escapes || known.keys().any(|words| words.contains(['%', '\\']));
                Universe::Path(PathRules { has_escapes, ..rules })
            }
            Universe::GrpcPath
            | Universe::Method
            | Universe::Value { .. }
            | Universe::Query
            | Universe::Cookie => universe,
        };
        Self { routes, automaton: Automaton::of(&shapes, universe), having, path_of }
    }

    /// Walks through all requests that meet the condition on the path of one of `relevant` (by side). A part is left where `settled` says
    /// that nothing more is asked of these lists; the others are returned, alike ones as one.
    pub(crate) fn walk(
        &mut self,
        arrival: &Arrival<'_>,
        relevant: &Both,
        budget: &mut Budget,
        mut settled: impl FnMut(&Both) -> bool,
    ) -> Walked {
        let conditions: BTreeSet<u32> = [0, 1]
            .into_iter()
            .flat_map(|side: usize| {
                let of_side = &self.path_of[side];
                relevant[side].iter().filter_map(|route| of_side.get(*route as usize).copied().flatten())
            })
            .collect();
        let conditions: Vec<u32> = conditions.into_iter().collect();
        let mut regions: Vec<(String, Both)> = Vec::new();
        let mut n_listed = 0;
        let (having, routes) = (&self.having, self.routes);
        let search = self.automaton.search(Some(&conditions), &mut budget.n_steps, |held, path| {
            let lists = [0, 1].map(|side| {
                let all = held.iter().filter_map(|condition| having.get(*condition as usize));
                let mut list: Vec<u32> = all.flat_map(|having| having[side].iter().copied()).collect();
                list.sort_unstable();
                cut(&mut list, |route| routes[side].get(route as usize).is_some_and(is_plain));
                list
            });
            if settled(&lists) {
                return ControlFlow::Continue(());
            }
            n_listed += lists[0].len() + lists[1].len();
            regions.push((path.to_owned(), lists));
            let is_much = n_listed > MAX_LISTED || regions.len() > MAX_PARTS;
            if is_much { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let mut undecided = Vec::new();
        if search != Search::Complete {
            undecided.push("more combinations of paths than are looked at".to_owned());
        }
        self.split(arrival, regions, budget, settled, undecided)
    }

    /// If a request reaches the route of the first side, when only some of the routes are there. `takes` says if it gets something of
    /// the routes of a decided list.
    pub(crate) fn reach(
        &mut self,
        arrival: &Arrival<'_>,
        route: u32,
        is_there: &dyn Fn(u32) -> bool,
        takes: impl Fn(&[u32]) -> bool,
        budget: &mut Budget,
    ) -> Reach {
        let Some(condition) = self.path_of[0].get(route as usize).copied().flatten() else {
            return Reach::Undecided;
        };
        let (having, routes) = (&self.having, self.routes);
        let plain = |at: u32| routes[0].get(at as usize).is_some_and(is_plain);
        let mut others: BTreeSet<u32> = BTreeSet::new();
        let mut open: BTreeMap<Vec<u32>, String> = BTreeMap::new();
        let mut n_listed = 0;
        let search = self.automaton.search(Some(&[condition]), &mut budget.n_steps, |held, path| {
            let all = held.iter().filter_map(|condition| having.get(*condition as usize));
            let mut list: Vec<u32> =
                all.flat_map(|having| having[0].iter().copied()).filter(|at| is_there(*at)).collect();
            list.sort_unstable();
            cut(&mut list, plain);
            others.extend(list.iter().copied().filter(|at| *at != route));
            if !list.contains(&route) {
                return ControlFlow::Continue(());
            }
            if list.iter().all(|at| *at == route && plain(*at)) {
                return ControlFlow::Break(());
            }
            n_listed += list.len();
            open.entry(list).or_insert_with(|| path.to_owned());
            // Most routes are reached at once.
            if n_listed > MAX_LISTED_EACH { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let is_cut = match search {
            Search::Complete => false,
            Search::Stopped if n_listed <= MAX_LISTED_EACH => return Reach::Yes,
            Search::Stopped | Search::Cut => true,
        };
        let regions = open.into_iter().map(|(list, path)| (path, [list, Vec::new()])).collect();
        let settled = |both: &Both| !both[0].contains(&route);
        let walked = self.split(arrival, regions, budget, settled, Vec::new());
        if walked.parts.iter().any(|part| takes(&part.lists[0])) {
            return Reach::Yes;
        }
        let is_open = is_cut || !walked.undecided.is_empty() || !self.automaton.unreadable.is_empty();
        if is_open { Reach::Undecided } else { Reach::No(others.into_iter().collect()) }
    }

    /// The parts of what a route of the second side takes, with the routes of the first side up to the same place. A part is left where
    /// `settled` says so. There may be more parts.
    pub(crate) fn overlap(
        &mut self,
        arrival: &Arrival<'_>,
        route: u32,
        budget: &mut Budget,
        settled: impl Fn(&Both) -> bool,
    ) -> Vec<Part> {
        let Some(condition) = self.path_of[1].get(route as usize).copied().flatten() else {
            return Vec::new();
        };
        let (having, routes) = (&self.having, self.routes);
        let mut regions: Vec<(String, Both)> = Vec::new();
        let mut n_listed = 0;
        self.automaton.search(Some(&[condition]), &mut budget.n_steps, |held, path| {
            if !held.contains(&condition) {
                return ControlFlow::Continue(());
            }
            let all = held.iter().filter_map(|condition| having.get(*condition as usize));
            let mut list: Vec<u32> =
                all.flat_map(|having| having[0].iter().copied()).filter(|at| *at <= route).collect();
            list.sort_unstable();
            cut(&mut list, |at| routes[0].get(at as usize).is_some_and(is_plain));
            n_listed += list.len();
            let both = [list, vec![route]];
            if !settled(&both) {
                regions.push((path.to_owned(), both));
            }
            if n_listed > MAX_LISTED_EACH { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        self.split(arrival, regions, budget, settled, Vec::new()).parts
    }

    /// Some parts whose lists have a route of the first side: those of the first regions of paths.
    pub(crate) fn some_of(
        &mut self,
        arrival: &Arrival<'_>,
        route: u32,
        n_regions: usize,
        budget: &mut Budget,
    ) -> Vec<Part> {
        let Some(condition) = self.path_of[0].get(route as usize).copied().flatten() else {
            return Vec::new();
        };
        let (having, routes) = (&self.having, self.routes);
        let mut regions: Vec<(String, Both)> = Vec::new();
        self.automaton.search(Some(&[condition]), &mut budget.n_steps, |held, path| {
            let all = held.iter().filter_map(|condition| having.get(*condition as usize));
            let mut list: Vec<u32> = all.flat_map(|having| having[0].iter().copied()).collect();
            list.sort_unstable();
            cut(&mut list, |at| routes[0].get(at as usize).is_some_and(is_plain));
            if list.contains(&route) {
                regions.push((path.to_owned(), [list, Vec::new()]));
            }
            if regions.len() < n_regions { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        self.split(arrival, regions, budget, |both| !both[0].contains(&route), Vec::new()).parts
    }

    fn split(
        &self,
        arrival: &Arrival<'_>,
        regions: Vec<(String, Both)>,
        budget: &mut Budget,
        settled: impl FnMut(&Both) -> bool,
        mut undecided: Vec<String>,
    ) -> Walked {
        let in_play: BTreeSet<(usize, u32)> = regions
            .iter()
            .flat_map(|(_, lists)| lists.iter().enumerate())
            .flat_map(|(side, list)| list.iter().map(move |route| (side, *route)))
            .collect();
        let with_routes = in_play
            .iter()
            .filter_map(|(side, index)| Some((*side, *index, self.routes[*side].get(*index as usize)?)));
        let dimensions = Dimensions::of(arrival, with_routes, &mut budget.n_steps);
        undecided
            .extend(dimensions.incomplete.iter().map(|name| format!("{name} with the rest of the request")));
        if dimensions.all.len() > MAX_DIMENSIONS {
            undecided.push(format!("conditions on more than {MAX_DIMENSIONS} headers and parameters"));
            return Walked { parts: Vec::new(), undecided };
        }
        let mut splitter = Splitter {
            arrival,
            routes: self.routes,
            dimensions: &dimensions,
            settled,
            found: Vec::new(),
            places: HashMap::new(),
            memo: HashMap::new(),
            n_left: budget.n_parts,
        };
        for (path, lists) in regions {
            let found = splitter.go(lists, 0, &path, &mut Vec::new());
            for (at, n) in found.iter() {
                if let Some(part) = splitter.found.get_mut(*at) {
                    part.n = part.n.saturating_add(*n);
                }
            }
        }
        budget.n_parts = splitter.n_left;
        if splitter.n_left == 0 {
            undecided.push("more combinations of conditions than are looked at".to_owned());
        }
        Walked { parts: splitter.found, undecided }
    }
}

fn shapes_of(route: &Route) -> Vec<Shape<'_>> {
    let everything = || vec![Shape::Prefix { text: String::new(), folds: false }];
    if route.path.matches("/", "GET") == Truth::Unknown {
        return everything();
    }
    route.path.shapes().unwrap_or_else(everything)
}

/// Returns `true` if a route takes every request that has its path.
fn is_plain(route: &Route) -> bool {
    let is_open = |condition: Condition<'_>| match condition {
        Condition::Path => route.path.is_connect() || route.path.matches("/", "GET") == Truth::Unknown,
        Condition::LeftOut(_)
        | Condition::Header(_)
        | Condition::Query(_)
        | Condition::Cookie(_)
        | Condition::Grpc
        | Condition::Certificate(..)
        | Condition::Branch(_)
        | Condition::Unknown(_)
        | Condition::Never => true,
    };
    takes_all(route) && !route.conditions().any(is_open)
}

/// Returns `true` unless a fraction lets requests pass.
fn takes_all(route: &Route) -> bool {
    route.fraction.as_ref().is_none_or(|fraction| fraction.ratio() == crate::ratio::Ratio::ONE)
}

/// Ends the list behind the first route that takes everything.
fn cut(list: &mut Vec<u32>, mut takes_all: impl FnMut(u32) -> bool) {
    if let Some(at) = list.iter().position(|route| takes_all(*route)) {
        list.truncate(at + 1);
    }
}

/// Parts by their index, and how many there are of each.
type Counted = Rc<[(usize, u64)]>;

struct Splitter<'s, S> {
    arrival: &'s Arrival<'s>,
    routes: [&'s [Route]; 2],
    dimensions: &'s Dimensions,
    settled: S,
    found: Vec<Part>,
    places: HashMap<(Both, Vec<String>), usize>,
    memo: HashMap<(Both, u128), Counted>,
    n_left: usize,
}

impl<S: FnMut(&Both) -> bool> Splitter<'_, S> {
    /// The parts of these lists, by their indices in `found`, and how many there are of each. `decided` are dimensions, `chosen` their
    /// values.
    fn go(&mut self, lists: Both, decided: u128, path: &str, chosen: &mut Vec<(usize, usize)>) -> Counted {
        if (self.settled)(&lists) {
            return Rc::new([]);
        }
        let masks = [0, 1].map(|side: usize| {
            lists[side].iter().fold(0, |mask, route| mask | self.dimensions.mask(side, *route))
        });
        let needed = masks[0] | masks[1];
        // Assumptions belong to the answer.
        let is_assuming = chosen.iter().any(|(dimension, _)| {
            let key = self.dimensions.all.get(*dimension).map(|dimension| &dimension.key);
            matches!(key, Some(Key::Unknown(_) | Key::Linked(_)))
        });
        let key = (lists, decided & needed);
        if !is_assuming && let Some(known) = self.memo.get(&key) {
            return Rc::clone(known);
        }
        let Some(left) = self.n_left.checked_sub(1) else { return Rc::new([]) };
        self.n_left = left;
        let (lists, _) = &key;
        let next = [0, 1].into_iter().find_map(|side: usize| {
            let mut open = lists[side].iter().map(|route| self.dimensions.mask(side, *route) & !decided);
            open.find(|open| *open != 0).map(u128::trailing_zeros)
        });
        let found = match next {
            None => self.leaf(lists, path, chosen),
            Some(dimension) => self.branch(lists, decided, dimension as usize, path, chosen),
        };
        if !is_assuming {
            self.memo.insert(key, Rc::clone(&found));
        }
        found
    }

    fn leaf(&mut self, lists: &Both, path: &str, chosen: &[(usize, usize)]) -> Counted {
        let values: Vec<(&Key, &Value)> = chosen
            .iter()
            .filter_map(|(dimension, value)| {
                let dimension = self.dimensions.all.get(*dimension)?;
                Some((&dimension.key, dimension.values.get(*value)?))
            })
            .collect();
        let mut when = Vec::new();
        let mut is_linked = false;
        for (key, value) in &values {
            match key {
                Key::Unknown(_) if value.is_empty() => when.push(format!("not: {}", key.say())),
                Key::Unknown(_) => when.push(key.say()),
                Key::Linked(_) => is_linked = true,
                Key::Header(_) | Key::Query(_) | Key::Cookie(_) | Key::Certificate => {}
            }
        }
        let place = (lists.clone(), when.clone());
        let at = *self.places.entry(place).or_insert_with(|| {
            let example = self.arrival.request(path, values.into_iter());
            self.found.push(Part { lists: lists.clone(), example, when, is_linked, n: 0 });
            self.found.len() - 1
        });
        Rc::new([(at, 1)])
    }

    fn branch(
        &mut self,
        lists: &Both,
        decided: u128,
        dimension: usize,
        path: &str,
        chosen: &mut Vec<(usize, usize)>,
    ) -> Counted {
        let decided = decided | 1 << dimension;
        let n_values = self.dimensions.all.get(dimension).map_or(0, |dimension| dimension.values.len());
        let mut groups: Vec<(Both, usize)> = Vec::new();
        let mut known: HashMap<Both, usize> = HashMap::new();
        for value in 0..n_values {
            let rest = [0, 1].map(|side: usize| {
                let mut list: Vec<u32> = lists[side]
                    .iter()
                    .copied()
                    .filter(|route| self.dimensions.holds(side, *route, dimension, value))
                    .collect();
                cut(&mut list, |route| {
                    self.dimensions.mask(side, route) & !decided == 0
                        && self.routes[side].get(route as usize).is_some_and(takes_all)
                });
                list
            });
            if !known.contains_key(&rest) {
                known.insert(rest.clone(), groups.len());
                groups.push((rest, value));
            }
        }
        let mut sums: Vec<(usize, u64)> = Vec::new();
        for (rest, value) in groups {
            chosen.push((dimension, value));
            let found = self.go(rest, decided, path, chosen);
            chosen.pop();
            for (at, n) in found.iter() {
                match sums.iter_mut().find(|(own, _)| own == at) {
                    Some((_, sum)) => *sum = sum.saturating_add(*n),
                    None => sums.push((*at, *n)),
                }
            }
        }
        sums.into()
    }
}
