//! All combinations of conditions on one text that a text can have, each with a shortest one that has it.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use regex_automata::hybrid::LazyStateID;
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::{Anchored, Input};

use crate::regex;
use crate::shape::{Shape, escaped};
use crate::space::universe::{self, Universe};

/// The product of the automata of conditions. Literals are in tries, so that thousands of them cost no more than one.
#[derive(Debug)]
pub(crate) struct Automaton {
    universe: Universe,
    /// As written, and in lower case.
    tries: [Trie; 2],
    machines: Vec<Machine>,
    /// The bytes that machines and the universe do not tell apart, the plainest first.
    blocks: Vec<Vec<u8>>,
    /// The conditions with an expression that cannot be read.
    pub(crate) unreadable: Vec<u32>,
}

/// How a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Search {
    /// Everything was visited.
    Complete,
    /// The visitor wanted no more.
    Stopped,
    /// A limit was reached.
    Cut,
}

#[derive(Debug)]
struct Trie {
    nodes: Vec<Node>,
    folds: bool,
    /// The nodes at which the literals of a condition end.
    ends: HashMap<u32, Vec<u32>>,
}

#[derive(Debug, Default)]
struct Node {
    children: Vec<(u8, u32)>,
    parent: u32,
    /// Conditions that take the text up to here, and those that take whatever follows.
    exact: Vec<u32>,
    prefix: Vec<u32>,
    /// The nearest node from here upwards that has prefixes, or [`NONE`].
    settled: u32,
}

#[derive(Debug)]
struct Machine {
    dfa: DFA,
    cache: Cache,
    start: LazyStateID,
    condition: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    universe: universe::State,
    positions: [Position; 2],
    machines: Box<[LazyStateID]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Position {
    /// The text so far is this node.
    At(u32),
    /// It has left the trie; the last node with prefixes on its way, or [`NONE`].
    Off(u32),
}

/// A state that was reached, and how.
struct Reached {
    state: State,
    from: usize,
    byte: u8,
}

/// No node.
const NONE: u32 = u32::MAX;

impl Automaton {
    /// `conditions` are the shapes of each.
    pub(crate) fn of(conditions: &[Vec<Shape<'_>>], universe: Universe) -> Self {
        let mut automaton = Self {
            universe,
            tries: [Trie::new(false), Trie::new(true)],
            machines: Vec::new(),
            blocks: Vec::new(),
            unreadable: Vec::new(),
        };
        for (condition, shapes) in (0..).zip(conditions) {
            for shape in shapes {
                automaton.add(condition, shape);
            }
        }
        for trie in &mut automaton.tries {
            trie.settle();
        }
        automaton.blocks = automaton.blocks();
        automaton
    }

    fn add(&mut self, condition: u32, shape: &Shape<'_>) {
        let dfa = match shape {
            Shape::Exact { text, folds } => {
                return self.tries[usize::from(*folds)].add(text, condition, true);
            }
            Shape::Prefix { text, folds } => {
                return self.tries[usize::from(*folds)].add(text, condition, false);
            }
            Shape::Suffix { text, folds } => {
                regex::automaton(&format!(r"\A{}(?s:.)*{}\z", fold(*folds), escaped(text)), false)
            }
            Shape::Contains { text, folds } => {
                regex::automaton(&format!(r"\A{}(?s:.)*{}(?s:.)*\z", fold(*folds), escaped(text)), false)
            }
            Shape::Regex(pattern) => pattern.automaton(),
            Shape::Expression(expression) => regex::automaton(&format!(r"\A(?:{expression})\z"), false),
        };
        let machine = dfa.and_then(|dfa| {
            let mut cache = dfa.create_cache();
            let start = dfa.start_state_forward(&mut cache, &Input::new("").anchored(Anchored::Yes)).ok()?;
            Some(Machine { dfa, cache, start, condition })
        });
        match machine {
            Some(machine) => self.machines.push(machine),
            None => self.unreadable.push(condition),
        }
    }

    fn blocks(&self) -> Vec<Vec<u8>> {
        let mut blocks: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for byte in plainest_first() {
            let mut key: Vec<u8> =
                self.machines.iter().map(|machine| machine.dfa.byte_classes().get(byte)).collect();
            let special = self.universe.special().iter().position(|one| *one == byte);
            key.push(special.and_then(|at| u8::try_from(at + 1).ok()).unwrap_or_default());
            let is_digit = self.universe.reads_escapes() && byte.is_ascii_hexdigit();
            key.push(if is_digit { byte.to_ascii_lowercase() } else { 0 });
            // The kinds of first and following bytes of UTF-8.
            key.push(match byte {
                0..=0x1f | 0x7f => 1,
                0x20..=0x7e => 0,
                0x80..=0x8f => 2,
                0x90..=0x9f => 3,
                0xa0..=0xbf => 4,
                0xc2..=0xdf => 5,
                0xe0 | 0xed | 0xf0 | 0xf4 => byte,
                0xe1..=0xef => 6,
                0xf1..=0xf3 => 7,
                0xc0 | 0xc1 | 0xf5..=0xff => 8,
            });
            match blocks.iter_mut().find(|(own, _)| *own == key) {
                Some((_, bytes)) => bytes.push(byte),
                None => blocks.push((key, vec![byte])),
            }
        }
        let is_ascii_enough = self.is_ascii_enough();
        let all = blocks.into_iter().map(|(_, bytes)| bytes);
        all.filter(|bytes| !is_ascii_enough || bytes.iter().any(u8::is_ascii)).collect()
    }

    /// Returns `true` if some ASCII byte is to all conditions as every byte beyond ASCII.
    fn is_ascii_enough(&self) -> bool {
        let is_alike = |plain: &u8| {
            let in_literal = self
                .tries
                .iter()
                .flat_map(|trie| &trie.nodes)
                .flat_map(|node| &node.children)
                .any(|(byte, _)| byte == plain || !byte.is_ascii());
            !in_literal
                && self.machines.iter().all(|machine| {
                    let classes = machine.dfa.byte_classes();
                    (0x80..=0xff).all(|byte| classes.get(byte) == classes.get(*plain))
                })
        };
        b"~!$+*,".iter().any(is_alike)
    }

    /// Visits every set of conditions that hold together, sorted, with a shortest text for which they do. With `relevant`, only sets that
    /// have one of these conditions; the rest of the space is not entered. `n_steps` counts down.
    pub(crate) fn search(
        &mut self,
        relevant: Option<&[u32]>,
        n_steps: &mut usize,
        mut visit: impl FnMut(&[u32], &str) -> ControlFlow<()>,
    ) -> Search {
        let relevant = relevant.map(|all| Relevant::of(all, &self.tries));
        let start = State {
            universe: universe::State::START,
            positions: [Position::At(0), Position::At(0)],
            machines: self.machines.iter().map(|machine| machine.start).collect(),
        };
        let mut reached = vec![Reached { state: start.clone(), from: 0, byte: 0 }];
        let mut seen: HashSet<State> = HashSet::from([start]);
        let mut told: HashSet<Vec<u32>> = HashSet::new();
        let mut bytes = Vec::new();
        let mut at = 0;
        while let Some(Reached { state, .. }) = reached.get(at) {
            let state = state.clone();
            if self.universe.accepts(state.universe) {
                let Some(held) = self.held(&state) else { return Search::Cut };
                let is_wanted = relevant
                    .as_ref()
                    .is_none_or(|relevant| held.iter().any(|one| relevant.conditions.contains(one)));
                if is_wanted && !told.contains(&held) {
                    let text = text(&reached, at);
                    if let Ok(text) = String::from_utf8(text)
                        && visit(&held, &text).is_break()
                    {
                        return Search::Stopped;
                    }
                    told.insert(held);
                }
            }
            self.candidates(&state, &mut bytes);
            for byte in &bytes {
                let Some(universe) = self.universe.step(state.universe, *byte) else { continue };
                let Some(left) = n_steps.checked_sub(1 + self.machines.len()) else { return Search::Cut };
                *n_steps = left;
                let Some(next) = self.step(&state, universe, *byte) else { return Search::Cut };
                let is_live = relevant
                    .as_ref()
                    .is_none_or(|relevant| relevant.can_hold(&next, &self.tries, &self.machines));
                if is_live && !seen.contains(&next) {
                    seen.insert(next.clone());
                    reached.push(Reached { state: next, from: at, byte: *byte });
                }
            }
            at += 1;
        }
        Search::Complete
    }

    /// The bytes that lead to different states: one of each block, and those on which a trie goes on.
    fn candidates(&self, state: &State, bytes: &mut Vec<u8>) {
        bytes.clear();
        for (trie, position) in self.tries.iter().zip(&state.positions) {
            let Position::At(node) = position else { continue };
            for (byte, _) in trie.children(*node) {
                bytes.push(*byte);
                if trie.folds {
                    bytes.push(byte.to_ascii_uppercase());
                }
            }
        }
        let n_own = bytes.len();
        for block in &self.blocks {
            let own = bytes.get(..n_own).unwrap_or_default();
            if let Some(byte) = block.iter().find(|byte| !own.contains(byte)) {
                bytes.push(*byte);
            }
        }
        bytes.sort_unstable_by_key(|byte| RANKS.get(usize::from(*byte)));
        bytes.dedup();
    }

    fn step(&mut self, state: &State, universe: universe::State, byte: u8) -> Option<State> {
        let mut positions = state.positions;
        for (trie, position) in self.tries.iter().zip(&mut positions) {
            *position = trie.step(*position, byte);
        }
        let mut machines = state.machines.clone();
        for (machine, id) in self.machines.iter_mut().zip(&mut machines) {
            *id = machine.dfa.next_state(&mut machine.cache, *id, byte).ok()?;
        }
        Some(State { universe, positions, machines })
    }

    /// The conditions that hold if the text ends here, sorted.
    fn held(&mut self, state: &State) -> Option<Vec<u32>> {
        let mut held = Vec::new();
        for (trie, position) in self.tries.iter().zip(&state.positions) {
            trie.held(*position, &mut held);
        }
        for (machine, id) in self.machines.iter_mut().zip(&state.machines) {
            let end = machine.dfa.next_eoi_state(&mut machine.cache, *id).ok()?;
            if end.is_match() {
                held.push(machine.condition);
            }
        }
        held.sort_unstable();
        held.dedup();
        Some(held)
    }
}

/// The conditions that a search is about.
struct Relevant {
    conditions: HashSet<u32>,
    /// For each trie the nodes above their literals.
    above: [HashSet<u32>; 2],
}

impl Relevant {
    fn of(all: &[u32], tries: &[Trie; 2]) -> Self {
        let conditions: HashSet<u32> = all.iter().copied().collect();
        let above = [0, 1].map(|at: usize| {
            let trie = &tries[at];
            let mut above = HashSet::new();
            for condition in &conditions {
                for end in trie.ends.get(condition).into_iter().flatten() {
                    let mut node = *end;
                    while above.insert(node) && node != 0 {
                        node = trie.nodes.get(node as usize).map_or(0, |node| node.parent);
                    }
                }
            }
            above
        });
        Self { conditions, above }
    }

    /// Returns `true` if one of the conditions may hold for a text that goes on from here.
    fn can_hold(&self, state: &State, tries: &[Trie; 2], machines: &[Machine]) -> bool {
        let by_trie = tries.iter().zip(&state.positions).zip(&self.above).any(|((trie, position), above)| {
            let settled = match position {
                Position::At(node) if above.contains(node) => return true,
                Position::At(node) => trie.settled(*node),
                Position::Off(settled) => *settled,
            };
            trie.prefixes(settled).any(|condition| self.conditions.contains(&condition))
        });
        by_trie
            || machines
                .iter()
                .zip(&state.machines)
                .any(|(machine, id)| !id.is_dead() && self.conditions.contains(&machine.condition))
    }
}

impl Trie {
    fn new(folds: bool) -> Self {
        Self { nodes: vec![Node { settled: NONE, ..Node::default() }], folds, ends: HashMap::new() }
    }

    fn add(&mut self, text: &str, condition: u32, is_exact: bool) {
        let mut at: u32 = 0;
        for byte in text.bytes() {
            let byte = if self.folds { byte.to_ascii_lowercase() } else { byte };
            let found = self.children(at).binary_search_by_key(&byte, |(own, _)| *own);
            at = match found {
                Ok(index) => self.children(at).get(index).map_or(0, |(_, child)| *child),
                Err(index) => {
                    let child = u32::try_from(self.nodes.len()).unwrap_or(NONE);
                    self.nodes.push(Node { parent: at, settled: NONE, ..Node::default() });
                    if let Some(node) = self.nodes.get_mut(at as usize) {
                        node.children.insert(index, (byte, child));
                    }
                    child
                }
            };
        }
        if let Some(node) = self.nodes.get_mut(at as usize) {
            if is_exact { &mut node.exact } else { &mut node.prefix }.push(condition);
            self.ends.entry(condition).or_default().push(at);
        }
    }

    /// Parents come before their children.
    fn settle(&mut self) {
        for at in 0..self.nodes.len() {
            let Some(node) = self.nodes.get(at) else { continue };
            let settled = match (node.prefix.is_empty(), at) {
                (false, _) => u32::try_from(at).unwrap_or(NONE),
                (true, 0) => NONE,
                (true, _) => self.settled(node.parent),
            };
            if let Some(node) = self.nodes.get_mut(at) {
                node.settled = settled;
            }
        }
    }

    fn children(&self, node: u32) -> &[(u8, u32)] {
        self.nodes.get(node as usize).map(|node| node.children.as_slice()).unwrap_or_default()
    }

    fn settled(&self, node: u32) -> u32 {
        self.nodes.get(node as usize).map_or(NONE, |node| node.settled)
    }

    fn step(&self, position: Position, byte: u8) -> Position {
        let Position::At(node) = position else { return position };
        let byte = if self.folds { byte.to_ascii_lowercase() } else { byte };
        let children = self.children(node);
        match children.binary_search_by_key(&byte, |(own, _)| *own) {
            Ok(index) => children.get(index).map_or(Position::Off(NONE), |(_, child)| Position::At(*child)),
            Err(_) => Position::Off(self.settled(node)),
        }
    }

    /// The conditions on prefixes from a node upwards.
    fn prefixes(&self, settled: u32) -> impl Iterator<Item = u32> {
        let above = |node: &&Node| {
            let parent = self.nodes.get(node.parent as usize)?;
            // The root is its own parent.
            let is_root = std::ptr::eq(*node, self.nodes.first()?);
            if is_root { None } else { self.nodes.get(parent.settled as usize) }
        };
        std::iter::successors(self.nodes.get(settled as usize), above)
            .flat_map(|node| node.prefix.iter().copied())
    }

    fn held(&self, position: Position, held: &mut Vec<u32>) {
        let settled = match position {
            Position::At(node) => {
                held.extend(self.nodes.get(node as usize).into_iter().flat_map(|node| &node.exact));
                self.settled(node)
            }
            Position::Off(settled) => settled,
        };
        held.extend(self.prefixes(settled));
    }
}

fn fold(folds: bool) -> &'static str {
    if folds { "(?i)" } else { "" }
}

fn text(reached: &[Reached], mut at: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while at != 0 {
        let Some(step) = reached.get(at) else { break };
        bytes.push(step.byte);
        at = step.from;
    }
    bytes.reverse();
    bytes
}

/// All bytes, in the order in which a person would write them.
fn plainest_first() -> impl Iterator<Item = u8> {
    PLAIN.bytes().chain((0..=255).filter(|byte| !PLAIN.as_bytes().contains(byte)))
}

const PLAIN: &str = "abcdefghijklmnopqrstuvwxyz0123456789/ABCDEFGHIJKLMNOPQRSTUVWXYZ-_.~";

/// The place of each byte in [`plainest_first`].
const RANKS: [u16; 256] = {
    let mut ranks = [0; 256];
    let plain = PLAIN.as_bytes();
    let mut at = 0;
    while at < 256 {
        ranks[at] = 256 + at as u16;
        at += 1;
    }
    let mut at = 0;
    while at < plain.len() {
        ranks[plain[at] as usize] = at as u16;
        at += 1;
    }
    ranks
};
