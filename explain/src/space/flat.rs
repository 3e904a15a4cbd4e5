//! A tree of matchers as a list of routes, which takes every request as the tree does (XR18).
//!
//! Since a branch that leads to no route leaves the rest of the tree to be asked, the branches of a tree in their order are a list. Each
//! route gets the conditions on the way to it, and behind the routes of a branch stands an end: requests that come so far find no route.

use std::sync::Arc;

use crate::choice::RouteTree;
use crate::header::Joined;
use crate::route::Route;
use crate::semantics::Semantics;
use crate::table::VirtualHost;
use crate::text::{Fold, Text};
use crate::tree::{Input, Kind, Node, Predicate, Then, Wanted, What};

/// A tree of matchers as a list of routes.
#[derive(Debug)]
pub(crate) struct Flat {
    pub(crate) routes: Vec<Route>,
    /// For each of them, the route of the virtual host; `None` for an end.
    pub(crate) of: Vec<Option<usize>>,
}

impl Flat {
    /// The list of a virtual host; `None` if it has no tree.
    ///
    /// # Errors
    ///
    /// Why the tree is none.
    pub(crate) fn of_host(host: Option<&VirtualHost>, semantics: Semantics) -> Result<Option<Self>, String> {
        let Some((host, tree)) = host.and_then(|host| Some((host, host.tree.as_ref()?))) else {
            return Ok(None);
        };
        let flat = Self { routes: Vec::new(), of: Vec::new() };
        let mut flattener = Flattener { host, tree, semantics, flat };
        flattener.node(&tree.tree.root, &[])?;
        Ok(Some(flattener.flat))
    }
}

/// Conditions that all must hold.
type All = Vec<Arc<Joined>>;

struct Flattener<'h> {
    host: &'h VirtualHost,
    tree: &'h RouteTree,
    semantics: Semantics,
    flat: Flat,
}

impl Flattener<'_> {
    fn node(&mut self, node: &Node, way: &[Arc<Joined>]) -> Result<(), String> {
        let otherwise = match node {
            Node::List { branches, otherwise } => {
                for branch in branches {
                    for all in alternatives(&branch.predicate, false)? {
                        self.then(&branch.then, &[way, &all].concat())?;
                    }
                }
                otherwise
            }
            Node::Map(map) => {
                let keys: Vec<(Text, &Then)> = match &map.kind {
                    Kind::Exact(keys) => {
                        keys.iter().map(|(key, then)| (Text::exact(key, Fold::Nothing), then)).collect()
                    }
                    // Behind its prefixes a text comes in the order of keys.
                    Kind::Prefix(keys) => keys
                        .iter()
                        .rev()
                        .map(|(key, then)| (Text::prefix(key, Fold::Nothing), then))
                        .collect(),
                    Kind::Ranges(_) => return Err("ranges of addresses".to_owned()),
                    Kind::Names { .. } => return Err("server names".to_owned()),
                    Kind::Unknown(name) => return Err(format!("{name} is not modelled")),
                };
                for (text, then) in keys {
                    let one = condition(&map.input, Arc::new(text), false)?;
                    self.then(then, &[way, &[one]].concat())?;
                }
                &map.otherwise
            }
            Node::Unknown(why) => return Err(why.clone()),
        };
        match otherwise {
            Some(then) => self.then(then, way),
            None => Ok(()),
        }
    }

    fn then(&mut self, then: &Then, way: &[Arc<Joined>]) -> Result<(), String> {
        match &then.what {
            What::Node(node) => self.node(node, way),
            What::Action(at) => {
                for index in self.tree.routes_of(*at) {
                    let Some(route) = self.host.routes.get(index) else { continue };
                    let route = Route::within(way.to_vec(), route.message.clone(), self.semantics);
                    self.add(route, Some(index))?;
                }
                self.add(Route::end(way.to_vec(), self.semantics), None)
            }
            What::Nothing => Ok(()),
            What::Unknown(why) => Err(why.clone()),
        }
    }

    fn add(&mut self, route: Route, of: Option<usize>) -> Result<(), String> {
        if self.flat.routes.len() >= MAX_ROUTES {
            return Err(format!("it is a list of more than {MAX_ROUTES} routes"));
        }
        self.flat.routes.push(route);
        self.flat.of.push(of);
        Ok(())
    }
}

/// The predicate, inverted or not, as alternatives.
fn alternatives(predicate: &Predicate, inverts: bool) -> Result<Vec<All>, String> {
    match (predicate, inverts) {
        (Predicate::Never, false) => Ok(Vec::new()),
        (Predicate::Never, true) => Ok(vec![Vec::new()]),
        (Predicate::Not(one), _) => alternatives(one, !inverts),
        (Predicate::Single { input, wanted: Wanted::Text(text) }, _) => {
            Ok(vec![vec![condition(input, Arc::clone(text), inverts)?]])
        }
        (Predicate::Single { wanted: Wanted::Ranges(_), .. }, _) => Err("ranges of addresses".to_owned()),
        (Predicate::Single { wanted: Wanted::Unknown(name), .. }, _) => {
            Err(format!("{name} is not modelled"))
        }
        (Predicate::Any(all), false) | (Predicate::All(all), true) => {
            let mut found = Vec::new();
            for one in all {
                found.extend(alternatives(one, inverts)?);
                within_limit(found.len())?;
            }
            Ok(found)
        }
        (Predicate::All(all), false) | (Predicate::Any(all), true) => {
            let mut found = vec![Vec::new()];
            for one in all {
                let more = alternatives(one, inverts)?;
                within_limit(found.len().saturating_mul(more.len()))?;
                let both = |own: &All| more.iter().map(|more| [&**own, more].concat()).collect::<Vec<_>>();
                found = found.iter().flat_map(both).collect();
            }
            Ok(found)
        }
    }
}

fn within_limit(n: usize) -> Result<(), String> {
    match n > MAX_ALTERNATIVES {
        true => Err(format!("a predicate with more than {MAX_ALTERNATIVES} alternatives")),
        false => Ok(()),
    }
}

fn condition(input: &Input, text: Arc<Text>, inverts: bool) -> Result<Arc<Joined>, String> {
    let Input::Header(name) = input else { return Err(format!("by the {input}")) };
    Ok(Arc::new(Joined { name: name.clone(), text, inverts }))
}

/// Routes and ends of one tree.
const MAX_ROUTES: usize = 50_000;

/// Alternatives of one predicate.
const MAX_ALTERNATIVES: usize = 1_024;
