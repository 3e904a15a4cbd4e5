//! Asks a tree of matchers. A branch that leads to no action leaves the rest of the tree to be asked, as in an Envoy 1.40.

use crate::header::is_secret;
use crate::tree::node::{Branch, Facts, Input, Kind, Known, Map, Node, Predicate, Then, Tree, Wanted, What};
use crate::truth::Truth;

/// Everything that a tree may answer, and what was looked at.
#[derive(Debug, Default)]
pub(crate) struct Walked {
    /// At least one, unless `has_more`. They exclude each other.
    pub(crate) ways: Vec<Way>,
    /// The branches in the order in which they were looked at, at most [`MAX_LOOKED`].
    pub(crate) looked: Vec<Looked>,
    /// How many branches that do not hold were left out of `looked`.
    pub(crate) n_left_out: usize,
    /// True if there are more ways than are followed.
    pub(crate) has_more: bool,
}

/// One answer.
#[derive(Debug)]
pub(crate) struct Way {
    /// What is assumed of inputs that are not known, in words.
    pub(crate) assumed: Vec<String>,
    pub(crate) found: Found,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// An action, by its position.
    Action(usize),
    /// No branch leads to one.
    Nothing,
    /// It is not modelled, for this reason.
    Unknown(String),
}

/// A branch that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Looked {
    /// Where it is in the resource.
    pub(crate) path: String,
    pub(crate) truth: Truth,
    /// What it was asked and what it found, in words.
    pub(crate) what: String,
}

/// Asks a tree about what `facts` know. Costs a look at each branch before the one that answers, and follows at most [`MAX_WAYS`] ways.
pub(crate) fn walk(tree: &Tree, facts: &dyn Facts) -> Walked {
    let mut walk = Walk { facts, walked: Walked::default(), n_forks: 0 };
    let open = walk.node(&tree.root, vec![Vec::new()]);
    let mut walked = walk.walked;
    walked.ways.extend(open.into_iter().map(|assumed| Way { assumed, found: Found::Nothing }));
    walked
}

/// What is assumed on a way.
type Assumed = Vec<String>;

struct Walk<'f> {
    facts: &'f dyn Facts,
    walked: Walked,
    n_forks: usize,
}

/// The ways that found nothing so far are given to each step, and it returns those that it leaves open.
impl Walk<'_> {
    fn node(&mut self, node: &Node, open: Vec<Assumed>) -> Vec<Assumed> {
        match node {
            Node::List { branches, otherwise } => {
                let open = self.list(branches, open);
                self.otherwise(otherwise.as_deref(), open)
            }
            Node::Map(map) => {
                let open = self.map(map, open);
                self.otherwise(map.otherwise.as_deref(), open)
            }
            Node::Unknown(why) => self.found(open, &Found::Unknown(why.clone())),
        }
    }

    fn then(&mut self, then: &Then, open: Vec<Assumed>) -> Vec<Assumed> {
        match &then.what {
            What::Node(node) => self.node(node, open),
            What::Action(at) => self.found(open, &Found::Action(*at)),
            What::Nothing => open,
            What::Unknown(why) => self.found(open, &Found::Unknown(why.clone())),
        }
    }

    fn otherwise(&mut self, otherwise: Option<&Then>, open: Vec<Assumed>) -> Vec<Assumed> {
        let Some(then) = otherwise.filter(|_| !open.is_empty()) else { return open };
        self.look(&then.path, Truth::Yes, "nothing else matched".to_owned());
        self.then(then, open)
    }

    fn found(&mut self, open: Vec<Assumed>, found: &Found) -> Vec<Assumed> {
        let ways = open.into_iter().map(|assumed| Way { assumed, found: found.clone() });
        self.walked.ways.extend(ways);
        Vec::new()
    }

    fn list(&mut self, branches: &[Branch], mut open: Vec<Assumed>) -> Vec<Assumed> {
        for branch in branches {
            let (mut yes, mut no) = (Vec::new(), Vec::new());
            for way in open {
                self.decide(&branch.predicate, way, &mut yes, &mut no);
            }
            let truth = match (yes.is_empty(), no.is_empty()) {
                (true, _) => Truth::No,
                (false, true) => Truth::Yes,
                (false, false) => Truth::Unknown,
            };
            self.look(&branch.then.path, truth, branch.predicate.say(self.facts, truth));
            if !yes.is_empty() {
                no.extend(self.then(&branch.then, yes));
            }
            open = no;
            if open.is_empty() {
                break;
            }
        }
        open
    }

    /// Sorts a way by a predicate, and forks it at what is not known.
    fn decide(&mut self, predicate: &Predicate, way: Assumed, yes: &mut Vec<Assumed>, no: &mut Vec<Assumed>) {
        match predicate.ask(self.facts, &way) {
            Ok(true) => yes.push(way),
            Ok(false) => no.push(way),
            Err(words) => {
                let Some([with, without]) = self.fork(&words, way) else { return };
                self.decide(predicate, with, yes, no);
                self.decide(predicate, without, yes, no);
            }
        }
    }

    /// The way with an assumption and without; `None` if too many ways are followed already.
    fn fork(&mut self, words: &str, way: Assumed) -> Option<[Assumed; 2]> {
        self.n_forks += 1;
        if self.n_forks >= MAX_WAYS {
            self.walked.has_more = true;
            return None;
        }
        let with = way.iter().cloned().chain([words.to_owned()]).collect();
        let without = way.into_iter().chain([format!("{NOT}{words}")]).collect();
        Some([with, without])
    }

    fn map(&mut self, map: &Map, open: Vec<Assumed>) -> Vec<Assumed> {
        match self.facts.value(&map.input) {
            Known::Absent => {
                self.look(&map.path, Truth::No, format!("{} is absent", map.input));
                open
            }
            Known::Text(value) => self.choose(map, &value, Truth::Yes, open),
            Known::Unknown => self.guess(map, open),
        }
    }

    /// The branches of a value, one after the other.
    fn choose(&mut self, map: &Map, value: &str, truth: Truth, mut open: Vec<Assumed>) -> Vec<Assumed> {
        let Some(candidates) = map.kind.candidates(value) else {
            let Kind::Unknown(name) = &map.kind else { return open };
            let why = format!("{name} chooses by the {}, which is not modelled", map.input);
            return self.found(open, &Found::Unknown(why));
        };
        let got = shown(&map.input, value);
        if candidates.is_empty() {
            self.look(&map.path, Truth::No, format!("{} is {got}, which no key takes", map.input));
        }
        for (key, then) in candidates {
            let by = if got == HIDDEN { String::new() } else { format!(": {key}") };
            self.look(&then.path, truth, format!("{} is {got}{by}", map.input));
            open = self.then(then, open);
            if open.is_empty() {
                break;
            }
        }
        open
    }

    /// Each key of a map whose input is not known may be it.
    fn guess(&mut self, map: &Map, mut open: Vec<Assumed>) -> Vec<Assumed> {
        let keys: Vec<&String> = match &map.kind {
            Kind::Exact(keys) | Kind::Prefix(keys) => keys.keys().collect(),
            Kind::Ranges(_) | Kind::Names { .. } | Kind::Unknown(_) => {
                let why = format!("the {} is not known", map.input);
                return self.found(open, &Found::Unknown(why));
            }
        };
        let is_prefix = matches!(map.kind, Kind::Prefix(_));
        let mut left = Vec::new();
        // The longest first, since a way is that of its longest prefix.
        for key in keys.into_iter().rev() {
            let words = match is_prefix {
                true => format!("{} is {key:?} or begins so", map.input),
                false => format!("{} is {key:?}", map.input),
            };
            let mut rest = Vec::new();
            for way in open {
                match assumed(&way, &words) {
                    Some(true) => left.extend(self.choose(map, key, Truth::Unknown, vec![way])),
                    Some(false) => rest.push(way),
                    None => {
                        let Some([with, without]) = self.fork(&words, way) else { continue };
                        left.extend(self.choose(map, key, Truth::Unknown, vec![with]));
                        rest.push(without);
                    }
                }
            }
            open = rest;
        }
        left.extend(open);
        left
    }

    fn look(&mut self, path: &str, truth: Truth, what: String) {
        if truth == Truth::No && self.walked.looked.len() >= MAX_LOOKED / 2
            || self.walked.looked.len() >= MAX_LOOKED
        {
            self.walked.n_left_out += 1;
            return;
        }
        self.walked.looked.push(Looked { path: path.to_owned(), truth, what });
    }
}

impl Predicate {
    /// If it holds; an error is what has to be assumed first.
    fn ask(&self, facts: &dyn Facts, way: &[String]) -> Result<bool, String> {
        match self {
            Self::Never => Ok(false),
            Self::Not(one) => one.ask(facts, way).map(|holds| !holds),
            Self::Single { input, wanted } => {
                let truth = single(facts, input, wanted);
                let words = || format!("{input} is {}", wanted.describe());
                match truth {
                    Truth::Yes => Ok(true),
                    Truth::No => Ok(false),
                    Truth::Unknown => assumed(way, &words()).ok_or_else(words),
                }
            }
            Self::Any(all) => every(all, false, facts, way),
            Self::All(all) => every(all, true, facts, way),
        }
    }

    /// What was asked and what was found, in words.
    fn say(&self, facts: &dyn Facts, truth: Truth) -> String {
        match self {
            Self::Never => "the predicate says nothing".to_owned(),
            Self::Not(one) => format!("not: {}", one.say(facts, truth.not())),
            Self::Single { input, wanted } => {
                let got = match facts.value(input) {
                    Known::Text(value) => format!("is {}", shown(input, &value)),
                    Known::Absent => "is absent".to_owned(),
                    Known::Unknown => "is not known".to_owned(),
                };
                match truth {
                    Truth::Yes => format!("{input} {got}"),
                    Truth::No | Truth::Unknown => format!("{input} {got}, wanted {}", wanted.describe()),
                }
            }
            Self::Any(all) | Self::All(all) => {
                let decides: Vec<&Self> = all
                    .iter()
                    .filter(|one| matches!(one.ask(facts, &[]), Ok(holds) if Truth::from(holds) == truth))
                    .collect();
                let shown = if decides.is_empty() { all.iter().collect() } else { decides };
                let all: Vec<String> =
                    shown.into_iter().take(MAX_SAID).map(|one| one.say(facts, truth)).collect();
                all.join("; ")
            }
        }
    }
}

/// `all` of the predicates hold (`wanted`), or any.
fn every(all: &[Predicate], wanted: bool, facts: &dyn Facts, way: &[String]) -> Result<bool, String> {
    let mut unknown = None;
    for one in all {
        match one.ask(facts, way) {
            Ok(holds) if holds != wanted => return Ok(!wanted),
            Ok(_) => {}
            Err(words) => unknown = unknown.or(Some(words)),
        }
    }
    unknown.map_or(Ok(wanted), Err)
}

fn single(facts: &dyn Facts, input: &Input, wanted: &Wanted) -> Truth {
    match (facts.value(input), wanted) {
        (Known::Absent, _) => Truth::No,
        (Known::Unknown, _) | (Known::Text(_), Wanted::Unknown(_)) => Truth::Unknown,
        (Known::Text(value), Wanted::Text(text)) => text.matches(&value),
        (Known::Text(value), Wanted::Ranges(ranges)) => {
            let address = value.parse();
            address.is_ok_and(|address| ranges.iter().any(|range| crate::cidr::is_in(address, range))).into()
        }
    }
}

/// What is assumed already.
fn assumed(way: &[String], words: &str) -> Option<bool> {
    way.iter().find_map(|own| match own.strip_prefix(NOT) {
        Some(own) => (own == words).then_some(false),
        None => (own == words).then_some(true),
    })
}

/// A value, unless it is a secret.
fn shown(input: &Input, value: &str) -> String {
    if matches!(input, Input::Header(name) if is_secret(name)) {
        return HIDDEN.to_owned();
    }
    format!("{:?}", value.chars().take(MAX_SHOWN).collect::<String>())
}

const NOT: &str = "not: ";
const HIDDEN: &str = "…";

/// Ways that are followed.
pub(crate) const MAX_WAYS: usize = 8;

/// Branches that are shown; half of them may be such as do not hold.
const MAX_LOOKED: usize = 40;

/// Parts of a predicate that are said, and characters of a value.
const MAX_SAID: usize = 4;
const MAX_SHOWN: usize = 200;
